#!/usr/bin/env bash
# first.sh: builds all instances under carry/device in parallel; ladder, then benchmarks. For a machine with a GPU.
cd "$(dirname "$0")/.."
export RT=/tmp/cellc-rt CELL_BACKEND=cuda
mkdir -p /tmp/x
bash bench/build_instance.sh carry/device/e1_f32 e1 tests/ladder/ladder.c /tmp/x/l_e1_f32 || exit 1
for i in $(ls carry/device); do
    spec=${i%_*}
    (bash bench/build_instance.sh carry/device/$i $spec tests/ladder/ladder.c /tmp/x/l_$i > /tmp/x/log_$i 2>&1 || tail -5 /tmp/x/log_$i
     bash bench/build_instance.sh carry/device/$i $spec bench/bench.c /tmp/x/b_$i >> /tmp/x/log_$i 2>&1) &
    while [ $(jobs -r | wc -l) -ge 14 ]; do sleep 0.1; done
done
wait
sizes() { case $1 in lstm*|gru*|mingru*) echo 2,3,5,4 3,17,64,40 1,1,33,7 5,33,128,96;; *) echo 2,3,5 3,17,64 1,1,33 5,33,128;; esac; }
for i in $(ls carry/device); do timeout 60 /tmp/x/l_$i $(sizes $i) 2>&1 | tail -4; done
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
timeout 100 /tmp/x/b_lstm_bf16 lstm 16,512,1024,1024
timeout 100 /tmp/x/b_e1_bf16 e1 16,512,1024
timeout 100 /tmp/x/b_gru_bf16 gru 16,512,1024,1024
timeout 100 /tmp/x/b_layernorm_bf16 layernorm 8192,1,4096
timeout 100 /tmp/x/b_swiglu_bf16 swiglu 8192,1,4096
timeout 100 /tmp/x/b_mingru_bf16 mingru 8,2048,1024,2048
timeout 100 /tmp/x/b_lstm_f32 lstm-f32 16,512,1024,1024
