#!/bin/bash
cd "$(dirname "$0")"; here=$PWD; cd tree
export GRAMMAR=$PWD/../grammar DIR=$OUT
( SANITIZE=0 FULL=1 ONLY='chunk.*packed|packed_long' timeout 280 bash scripts/on_gpu.sh ladder; tail -n 12 $DIR/ladder.log )
WORKLOADS=$here/packed.txt COMPILE=1 ARCH=sm_90 bash bench/run.sh $here/t > $OUT/compile.log 2>&1; tail -2 $OUT/compile.log
WORKLOADS=$here/packed.txt ARCH=sm_90 timeout 200 bash bench/run.sh $here/t > $OUT/packed.txt 2>&1; cat $OUT/packed.txt
