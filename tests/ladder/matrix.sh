#!/bin/bash
# Lists the instances that the ladder tests. In: FULL (every type with every schedule, and sizes that fill
# warps; else every schedule in f32 and one other type in turn), COVER (all types of each setting, and
# behind each line its form: what cover.awk chooses from), LARGE (also batches above 65,535 and tensors of
# more than 2^31 elements, which want a GPU of 80 GB). Out: a line per instance, `NAME SPEC OPTIONS |
# SIZES...`, where OPTIONS are those of `cellc emit` and each of SIZES is B,T and the run-time dims: each
# dim different, T from one step to past a checkpoint or two. gpu:B,T,dims... are for a GPU: as many blocks
# as its 132 multiprocessors want. The emulator has 4, and next to them stand sizes that take the same paths
# there.
set -u
full=${FULL:-}

# The types of an instance; TYPES overrides. Which of the others goes with f32 follows from the instance's own words, so
# that a new one changes nothing for the rest.
types() { # words
    local others=(bf16 f64 f16) words="$*" sum=0 i code
    if [[ -n ${TYPES:-} ]]; then
        echo "$TYPES"
    elif [[ -n $full${COVER:-} ]]; then
        echo f32 bf16 f16 f64
    else
        for ((i = 0; i < ${#words}; i++)); do
            printf -v code %d "'${words:i:1}"
            sum=$(((sum * 31 + code) % 65521))
        done
        echo f32 "${others[sum % 3]}"
    fi
}

shopt -s extglob
declare -A printed
instance() { # spec, schedules, sizes, options...: lines of one setting in each schedule and type, each once
    local spec=$1 schedules=$2 sizes=$3 schedule type name word line
    shift 3
    for schedule in $schedules; do
        for type in $(types "$spec" "$schedule" "$@"); do
            printf -v name '_%s' "$@"
            for word in reverse lengths packed; do
                name=${name/_--$word/_$word}
            done
            name=${name//_--*([a-z])_/_}
            name=${spec}_${schedule}_$type${name%_}${SUFFIX:-}
            name=${name//[^a-zA-Z0-9]/_}
            line="$name $spec --schedule $schedule --dtype $type $* | $sizes${COVER:+ | ${SUFFIX:-}}"
            [[ -n ${printed[$line]:-} ]] || echo "$line"
            printed[$line]=1
        done
    done
}

one="1,1,7 2,2,5 3,3,9 1,5,3 3,17,7 1,34,5 gpu:2,34,5"
two="1,1,7,2 2,2,5,3 3,3,9,1 1,5,3,2 3,17,7,5 1,34,5,3"
heads="1,1,2 2,2,3 3,3,1 1,5,4 3,17,2 1,34,5"
one_few=${one% gpu:*}
one_less="1,1 2,2 3,3 1,5 3,17 1,34 gpu:2,34"
if [[ -n $full ]]; then
    one+=" 5,15,33 1,16,64 7,33,70 2,100,13"
    two+=" 5,15,33,3 1,16,64,6 3,33,70,9 2,100,13,2"
    heads+=" 5,15,3 1,16,6 3,33,9 2,100,2"
fi
for bias in fixed none input; do
    instance e79 "steps tile" "$one" --dim N=6 --set bias=$bias
done
instance e75 "steps tile" "$two" --dim N=5
# The gradient of dt_bias is decided in some draws only.
instance e88 "steps tile" "$two 2,5,9,6" --dim N=5 --dim V=7
for spec in delta gated_delta linear_attention; do
    instance $spec "steps tile" "$heads" --dim N=5 --dim V=7
done
instance deltaproduct tile "$heads" --dim N=5 --dim V=7 --dim M=3
instance e21 tile "$heads" --dim N=6 --dim P=4
# A block has a head of a sequence, and walks all steps: of few elements and many, of none that are heads, of
# two axes of them; the last has no room for what is asked for a step ahead. A param's gradient is summed as steps
# make it where that is smaller than the state: of m2rnn where N is at least V.
for spec in m2rnn delta; do
    instance $spec block "$heads" --dim N=5 --dim V=7
done
instance m2rnn block "$heads" --dim N=7 --dim V=5
instance e91 block "$heads" --dim N=6 --dim R=3
instance e92 block "$heads" --dim N=9
instance e85 block "$one_less" --dim N=5
instance e75 block "$two" --dim N=5
TYPES=f32 instance e79 block "$one" --dim N=6 --set bias=input --reverse
TYPES=bf16 instance e79 block "$one" --dim N=6 --set bias=input --lengths
TYPES=f64 instance e88 block "2,3,5,3 1,17,5,2" --dim N=5 --dim V=7 --set conv=causal
TYPES="f32 f16" instance e92 block "2,6,2 ${full:+2,5,2 }gpu:2,5,2 gpu:3,34,5" --dim N=40
TYPES=f32 instance m2rnn block "1,11,1 ${full:+1,4,1 }gpu:1,4,1 gpu:2,17,3" --dim N=64 --dim V=64
# Products with what all sequences share are sums like any other; of the states, of pieces laid together, of
# all heads behind the walk.
instance lstm block "$one" --dim H=6
instance lstm_layernorm block "$one" --dim H=9
instance gru_d block "$one_less" --dim D=4 --dim H=5
instance e93 block "$two" --dim N=5 --dim M=4
instance e7 block "$one_less" --dim M=3
TYPES=bf16 instance lstm_peephole block "3,5,2 gpu:33,34,5" --dim H=33 --lengths
# In chunks of steps; calls of one step take the walk. FULL: all types, and the ends of chunks of 16 steps.
chunks() { # types, spec, options...
    local sizes="1,1,2 2,2,1 1,17,3 2,35,2" some=$1 spec=$2
    shift 2
    [[ -z $full ]] || sizes+=" 1,15,1 1,16,2 1,53,2" some="f32 bf16 f16 f64"
    TYPES=$some instance "$spec" chunk:rows=16 "$sizes" --dim N=5 --dim V=7 "$@"
}
chunks "f32 f16" gated_delta
chunks "f64 bf16" kda
chunks f16 linear_attention --set normaliser=total --set feature=elu
chunks f32 gla --lengths
chunks f64 delta --reverse
chunks bf16 mlstm
chunks f64 deltaproduct --lengths --dim M=3
TYPES=f64 instance trellis chunk:rows=16 "2,2 1,18" --dim D=7 --dim K=4
# Two states that feed one another; the last one with several blocks of values, and more keys than rest takes
# at a time.
coupled() { # types, spec, options...
    local sizes="1,1,2 2,2,1 1,17,3 2,35,2" some=$1 spec=$2
    shift 2
    [[ -z $full ]] || some="f32 bf16 f16 f64"
    TYPES=$some instance "$spec" chunk:rows=16 "$sizes" "$@"
}
coupled "f64 bf16" titans --dim N=5
coupled f32 titans --dim N=6 --lengths --set read=before
coupled f16 titans --dim N=4 --reverse
coupled f64 titans --dim N=6 --packed
coupled "f64 f16" dgd --dim N=5 --dim V=7 --set momentum=ema
TYPES="f32 bf16" SUFFIX=_segments instance titans chunk:rows=16 "1,1,3 1,515,2" --dim N=6
TYPES="f32 f16" instance titans chunk "1,1,1 1,70,2 gpu:2,197,40" --dim N=70
TYPES=bf16 SUFFIX=_few instance titans auto "1,1,1 3,3,2 gpu:2,2047,5 gpu:2,2048,5 gpu:3,2048,5"
# A gate for each value, of which the call or the cell says how many; several blocks of values in all kernels.
by_value() { # types, spec, sizes, options...
    local some=$1 spec=$2 sizes=$3
    shift 3
    [[ -z $full ]] || some="f32 bf16 f16 f64"
    TYPES=$some instance "$spec" chunk:rows=16 "$sizes" "$@"
}
values="1,1,2 2,2,5 1,17,3 2,35,18 ${full:+1,15,1 1,16,2 1,53,70}"
by_value "f64 bf16" e14 "$values" --dim K=5
by_value f16 e14 "$values" --dim K=5 --reverse
by_value f32 e14 "1,17,3 3,35,18" --dim K=5 --lengths
by_value "f32 f16" e74 "1,1,2 2,2,5 1,17,3 2,35,2" --dim N=6 --set update=ema --set nonlinearity=none
TYPES="f64 f32" instance e14 chunk "1,1,3 2,70,40 gpu:2,197,100 gpu:3,65,200"
TYPES=bf16 SUFFIX=_long instance e74 auto "1,1,3 2,2,5 gpu:2,511,5 gpu:2,512,5 gpu:129,512,3" \
    --set update=ema --set nonlinearity=none
# Packed sequences: a chunk ends where its sequence does, and some have none.
packed_chunks() { # types, spec, options...
    local some=$1 spec=$2
    shift 2
    [[ -z $full ]] || some="f32 bf16 f16 f64"
    TYPES=$some instance "$spec" chunk:rows=16 "1,1,2 3,2,1 5,17,2 7,37,1" --dim N=5 --dim V=7 --packed "$@"
}
packed_chunks "f32 bf16" gated_delta
packed_chunks f64 kda --reverse
packed_chunks f16 gla
packed_chunks f64 deltaproduct --dim M=3
packed_chunks bf16 mlstm
TYPES=bf16 SUFFIX=_packed_long instance delta auto "1,1,1 2,2,1 gpu:2,192,2 gpu:5,1500,2 gpu:3,65,3" \
    --dim N=128 --dim V=64 --packed
# Few heads and many steps: 32 chunks of 16 rows and more are walked in segments side by side.
TYPES="f32" SUFFIX=_segments instance gated_delta chunk:rows=16 "1,1,1 1,515,1 gpu:1,4100,3" --dim N=5 --dim V=7
TYPES="f64" SUFFIX=_segments instance deltaproduct chunk:rows=16 "1,171,1" --dim N=5 --dim V=7 --dim M=3 --lengths
TYPES="bf16" SUFFIX=_segments instance gla chunk:rows=16 "1,515,1 gpu:2,2100,2" --dim N=5 --dim V=7 --reverse
TYPES="f32 bf16" instance gated_delta chunk "1,1,1 gpu:2,197,8 gpu:3,64,2"
TYPES=bf16 instance kda chunk "1,1,1 gpu:2,197,8 gpu:3,63,2"
# Long calls of large states take chunks by themselves.
TYPES=bf16 SUFFIX=_long instance delta auto "1,1,1 2,2,1 gpu:2,63,2 gpu:2,64,2 gpu:1,700,3" \
    --dim N=128 --dim V=64
TYPES=bf16 SUFFIX=_long instance gla auto "1,1,1 2,2,1 gpu:1,127,2 gpu:1,128,2 gpu:1,1100,2"
for spec in lstm gru; do
    instance $spec "steps gemm" "$two"
done
for spec in e0 e1; do
    instance $spec "steps gemm" "$one"
done
# One kernel walks the steps: its blocks are 8 or 16 units each, it takes 16 sequences at a time and 64 at most, or, in 16 bits, 32;
# the emulated device holds 4 blocks: two pairs, which divide forward's operand where clusters are allowed. A GPU takes it
# beyond 256 units only, since before that a block walks alone.
for spec in lstm gru; do
    TYPES="bf16 f16 f32" SUFFIX=_panel instance $spec gemm "chip:2,3,5,24 chip:18,4,3,31 blocks:2,3,5,24 blocks:18,4,3,31 chip:65,2,2,9 chip:2,2,3,33 chip:3,3,2,26 chip:2,3,3,44 2,2,3,265 gpu:2,2,3,268 gpu:19,3,2,265 gpu:32,2,3,304"
done
for spec in e0 e1; do
    TYPES="bf16 f16 f32" SUFFIX=_panel instance $spec gemm "chip:2,3,40 chip:18,4,64 chip:65,2,17 chip:2,2,65 chip:3,3,42 chip:32,3,40 17,2,272"
done
# The same with several products in a step: of one another's results, over an input's axis and a state's (of one
# a block may have no units). What b_gh and w_gx of gru_d get in bf16 is decided at some of the small sizes only.
several="chip:2,3,5,24 chip:18,2,3,31 gpu:17,2,3,272"
TYPES="bf16 f32" SUFFIX=_panel instance gru gemm "$several" --set reset=before
several="chip:2,3,24,9 chip:5,2,12,30 chip:18,2,9,24 gpu:17,2,300,40 gpu:3,3,16,280"
TYPES="bf16 f32" SUFFIX=_panel instance gru_d gemm "$several"
TYPES=bf16 SUFFIX=_panel instance rhn gemm "chip:2,3,5,24 gpu:3,2,5,272"
# More units than a cluster takes, and sequences than 16.
TYPES=bf16 SUFFIX=_wide instance e1 gemm "2,2,1028 gpu:17,2,1028 2,3,24"
# A cluster of 16 blocks walks the steps (the emulated device holds one), 64 units a block; not of cells with several gates.
# Units that end within a block, within 32 and within 8; blocks without units; 8 sequences a cluster, and fewer.
for spec in e0 e1; do
    TYPES="bf16 f16" SUFFIX=_cluster instance $spec gemm "cluster:2,3,40 cluster:9,3,67 cluster:8,2,150 cluster:8,1,40"
done
# A block walks all steps of up to 8 sequences, as its 256 threads suffice.
for spec in lstm e1; do
    sizes=$([[ $spec == lstm ]] && echo "2,3,5,24 19,4,3,31 65,2,2,9 3,2,2,130" || echo "2,3,40 19,4,64 65,2,17 3,2,200 9,2,200")
    TYPES="bf16 f32" SUFFIX=_block instance $spec gemm "$sizes"
done
# The same for each head, in 16 bits with tensor cores, which sLSTM's divisions do not suit.
TYPES="f32 f64" SUFFIX=_head instance slstm gemm "1,1,3,2,5 2,3,5,3,24 19,4,3,1,17 40,3,2,3,33 3,2,2,2,130 2,2,2,1,257"
TYPES=f32 SUFFIX=_head instance slstm gemm "1,1,5,2 2,2,5,2 37,2,3,2 4,5,2,1" --dim N=64
TYPES=f32 SUFFIX=_head instance slstm gemm "1,1,5,2 2,2,5,2 9,3,3,1" --dim N=24 --set forget=exp
TYPES="f32 f64" SUFFIX=_head instance slstm gemm "1,1,2,5 2,3,3,24 40,3,3,33 2,2,1,257" --set input=given
TYPES=f32 SUFFIX=_head instance slstm gemm "1,1,2 2,2,2 37,2,2 4,5,1" --dim N=64 --set input=given
TYPES="f32 bf16 f16" SUFFIX=_head instance lstm_heads gemm "1,1,3,2,5 2,3,5,3,24 19,4,3,1,17 3,2,2,2,130 2,2,2,1,257"
TYPES="f32 bf16 f16" SUFFIX=_head instance lstm_heads gemm "1,1,2,5 2,3,3,24 40,3,3,33 2,2,1,257" --set input=given
TYPES=bf16 SUFFIX=_head instance lstm_heads gemm "1,1,5,2 2,2,5,2 37,2,3,2 4,5,2,1" --dim N=64
TYPES=bf16 SUFFIX=_head instance lstm_heads gemm "1,1,2 2,2,2 37,2,2 4,5,1" --dim N=64 --set input=given
# A product per sequence: slots share their weights.
TYPES="f32 bf16" instance e2 "steps gemm" "$two"
# One kernel of blocks that have units of one sequence: several blocks, of which the last is not full.
TYPES="bf16 f16" SUFFIX=_columns instance e2 gemm "1,2,136,2 gpu:2,2,136,5 1,4,8,1 1,2,16,64"
TYPES=bf16 SUFFIX=_columns instance e2 gemm "2,3,16,5 1,2,264,2" --reverse
# Enough elements for vectors within a step.
TYPES=f32 SUFFIX=_wide instance slstm steps "64,1,1,512,8 1,2,1,8,2 gpu:64,2,1,512,8"
# Vectors where a step's kernel sums along an axis, and slots for several turns of its warps.
instance e2 "steps gemm" "1,1,7 2,2,70 3,3,1 9,5,17 1,34,64" --dim D=8
instance e2 gemm "2,3,70 5,2,3" --dim D=6
instance mingru "steps scan" "$two"
instance hgrn scan "$one 2,9,70 2,150,5 1,290,33"
# A thread has two units; of chunks whole and cut, one state in 8, or 4, is saved.
pairs="1,1 2,5 3,16 2,70 1,128 2,150 1,290"
TYPES="bf16 f16" SUFFIX=_pairs instance hgrn scan "$pairs" --dim D=6
# Whole turns of a whole block, whose reads are under way a turn ahead, and whose stores have no tests.
TYPES="bf16 f16" SUFFIX=_pairs instance hgrn scan "1,264 2,290" --dim D=38
TYPES=bf16 SUFFIX=_pairs instance hgrn scan "2,70 1,133" --dim D=38 --reverse
TYPES=bf16 SUFFIX=_pairs instance hgrn scan "3,70 2,133" --dim D=10 --lengths
# Copies of 16 bytes: blocks with units of two sequences, and with none at their end.
TYPES="bf16 f16" SUFFIX=_wide instance hgrn scan "$pairs 3,264 2,290" --dim D=24
# So many units that a block has 64.
TYPES=bf16 SUFFIX=_many instance hgrn scan "683,17 gpu:683,70" --dim D=24
TYPES=f16 SUFFIX=_many instance hgrn scan "432,17" --dim D=38
TYPES=bf16 SUFFIX=_wide instance hgrn scan "2,70 1,133" --dim D=40 --reverse
TYPES=bf16 SUFFIX=_wide instance hgrn scan "3,70 2,133" --dim D=8 --lengths
TYPES="bf16 f16" SUFFIX=_pairs instance mingru scan "1,1,3 3,9,2 2,150,3" --dim H=10
TYPES=bf16 SUFFIX=_pairs instance mamba1 scan "1,1 2,3 2,40" --dim E=6 --dim N=4
instance indrnn scan "$two 2,9,3,70"
# On the chip, with the gradient of a param that multiplies the state before each step: forward keeps the states for it. And a
# value behind the walk that reads such a state: the steps take it.
TYPES="f32 bf16" instance indrnn tile "1,1,3 3,19,2" --dim H=6
TYPES="f32 bf16" instance mamba1 tile "1,1 2,3 2,40" --dim E=6 --dim N=4
TYPES="f32 bf16" SUFFIX=_own instance mamba1 tile "2,20 2,3" --dim E=20 --dim N=20
TYPES=f32 SUFFIX=_square instance trellis auto "2,5 1,18" --dim D=4 --dim K=4
# The next state is a name for a value of the step, in chunks of time too.
TYPES="f32 f64 bf16" instance e21 scan "$heads 2,40,3 1,150,5" --dim N=4 --dim P=3 --dim R=5 --dim K=2 --set act=linear
instance mingru tile "$one" --dim H=6
instance swiglu map "$one"
# Rows that fill the threads of a block exactly, and nearly, in each type; in vectors of 4 elements, 2 and one; longer than
# what stays in registers of a row's own, of a block's sums, or at all.
TYPES="f32 f64 bf16" instance layernorm map "$one 5,3,256 2,2,264 9,1,512 3,1,520"
TYPES=f64 SUFFIX=_rows instance layernorm map "7,3,3 6,1,517 2,2,2052 2,1,4100"
TYPES=bf16 SUFFIX=_rows instance layernorm map "7,3,260 5,1,1034 6,1,517 2,2,8200"
TYPES="f32 bf16" SUFFIX=_rows instance rmsnorm map "7,3,258 5,1,1034 6,1,517"
TYPES="f32 bf16" instance linear_act map "$two 5,3,8,256 2,2,16,264"
instance swiglu_mlp map "$two"

# Complex values: pairs in every buffer, products over the parts.
TYPES="f32 f64 bf16" instance complex_linear map "$two"
for op in muladd div abs; do
    instance complex_muladd map "$one" --set op=$op
done
TYPES="f32 f64" instance complex_lru "steps scan" "$one"
TYPES="f32 f16" instance s5 "steps scan" "$two" --set normal=gamma
TYPES="f32 bf16" instance mamba1 scan "$one" --dim N=4

# Memories that learn by inner gradients.
instance dgd "steps tile" "$heads" --dim N=5 --dim V=7
instance dgd tile "$heads" --dim N=5 --dim V=7 --set bias=kl --set clip=exact --set momentum=ema
# Warps that exchange in the replay too, behind which the way back begins.
TYPES=f32 instance dgd tile:cluster=2 "2,3,2 1,18,1" --dim N=64 --dim V=33
instance titans "steps tile" "$one" --dim N=6
# In 16 bits roundings decide all of some tensors of Moneta and Trellis in most draws; and with the sizes of
# FULL, and at 34 steps of two sequences, single elements of Moneta in f32.
decided=${COVER:+f32 f64}
[[ -z $full ]] || decided="f32 f64"
TYPES=${TYPES:-$decided} instance moneta steps "$one_few" --dim N=3
for spec in yaad memora; do
    instance $spec steps "$one" --dim N=3
done
# At larger widths the memory diverges, beyond the range of f32, within fifteen steps.
instance titans_mlp steps "1,1,7 2,2,5 3,3,9 1,5,3 3,17,7 2,34,5${full:+ 5,15,12 1,16,16 7,33,10 2,100,6}" --dim N=3
TYPES=${TYPES:-$decided} instance trellis steps "$one" --dim K=3
instance atlas tile "$one" --dim N=6 --set clamps=exact
instance hebbian tile "$one" --dim N=6 --set feature=fourier
instance lattice steps "$one" --dim N=6 --dim M=3 --set write=similarity

# Integers: tables with more rows than a digit of the sort has values, and positions for more than one of its blocks.
instance embedding map "$two 2,1100,300,5"
instance cross_entropy map "$one"
instance cross_entropy map "$one" --set smoothing=uniform --set ignore=index --set ignored=-1

# Earlier steps: sequences shorter than what they look back at, and longer.
instance conv4_silu map "$one" --dim K=4
instance conv4_silu map "1,1,3 2,9,2" --dim K=7
instance window_attention "map window attention" "$heads" --dim N=5 --dim V=7 --dim W=6 --dim P=3 --set prefix=learned --set distance=linear
TYPES=f32 instance window_attention attention "$heads 1,66,2" --dim N=5 --dim V=7 --dim W=65 --dim P=9 --set prefix=learned --lengths
TYPES=bf16 instance window_attention attention "$heads 1,66,2" --dim N=5 --dim V=7 --dim W=65 --dim P=2 --set prefix=learned --reverse
instance window_attention "map window attention" "$heads" --dim N=5 --dim V=7 --dim W=6 --dim G=2
instance e28 "steps gemm" "$one" --dim K=3
instance e88 "steps tile" "1,1,7,2 2,3,5,3 1,17,5,2" --dim N=5 --dim V=7 --set conv=causal
instance causal_attention "map window attention" "$heads 2,0,3,0 2,3,2,9,4 1,1,1,12,11" --dim N=5 --dim V=7 --dim G=2

# Steps that backward undoes: where tensors have 16 bits.
types_before=${TYPES:-}
TYPES="bf16 f16"
instance delta tile "$heads" --dim N=5 --dim V=7
instance linear_attention tile "$heads" --dim N=5 --dim V=7
TYPES=$types_before

# Time walked backwards, in every schedule: rows of inputs and outputs, of what is kept for each step, of rings,
# of earlier steps and of histories.
types_before=${TYPES:-}
TYPES=${TYPES:-f64 bf16}
instance e79 "steps tile" "$one" --dim N=6 --set bias=input --reverse
instance e88 tile "1,1,7,2 2,3,5,3 1,17,5,2" --dim N=5 --dim V=7 --set conv=causal --reverse
instance lstm "steps gemm" "$two" --reverse
instance mingru scan "$two" --reverse
instance conv4_silu map "$one" --dim K=4 --reverse
instance causal_attention "map window attention" "$heads 2,4,1,7,3" --dim N=5 --dim V=7 --dim G=2 --reverse
instance e28 gemm "$one" --dim K=3 --reverse
instance e2 gemm "$two" --reverse
# Packed sequences: all of T steps, none, half of them and one, in turn.
instance e79 tile "$one 5,17,7" --dim N=6 --set bias=input --packed
instance e88 tile "2,3,5,3 5,17,5,2 4,37,3,2" --dim N=5 --dim V=7 --set conv=causal --packed
instance delta tile "$heads" --dim N=5 --dim V=7 --packed --reverse
TYPES="f32 bf16" instance e88 tile "5,37,5,2 2,18,5,1" --dim N=32 --dim V=32 --packed
TYPES="f32 bf16" SUFFIX=_few instance e79 tile:cluster=2 "1,2,3 3,7,3" --dim N=20 --set bias=input --packed
instance mingru scan "$two 5,9,3,4" --packed
instance s5 scan "$two" --packed --reverse
instance conv4_silu map "$one 5,9,7" --dim K=4 --packed
instance conv4_silu map "$one" --dim K=4 --packed --reverse
instance layernorm map "$one 7,5,70" --packed
# Sequences of several lengths.
instance e79 "steps tile" "$one" --dim N=6 --set bias=input --lengths
instance lstm gemm "$two" --lengths
instance e2 gemm "$two" --lengths
instance lstm steps "$two" --lengths --reverse
instance mingru scan "$two" --lengths
instance delta tile "$heads" --dim N=5 --dim V=7 --lengths --reverse
instance conv4_silu map "$one" --dim K=4 --lengths --reverse
instance causal_attention "map window" "4,5,1 3,17,2" --dim N=5 --dim V=7 --dim G=2 --lengths --reverse
instance conv4_silu map "$one" --dim K=4 --lengths
instance causal_attention "map window attention" "4,5,1 3,17,2 4,5,1,9,4" --dim N=5 --dim V=7 --dim G=2 --lengths
instance e88 "steps tile" "2,3,5,3 1,17,5,2" --dim N=5 --dim V=7 --set conv=causal --lengths --reverse
TYPES=$types_before
TYPES=bf16 SUFFIX=_panel instance lstm gemm "chip:2,3,5,24 chip:18,4,3,31 chip:2,2,3,33 18,4,3,31" --lengths
TYPES=bf16 SUFFIX=_panel instance lstm gemm "chip:2,3,5,24 chip:18,4,3,31 chip:2,2,3,33 18,4,3,31" --reverse
TYPES=bf16 SUFFIX=_panel instance e1 gemm "chip:2,3,40 chip:18,4,64 18,4,64 chip:8,1,40" --reverse
TYPES=bf16 SUFFIX=_panel instance gru gemm "chip:2,3,5,24" --set reset=before --lengths
TYPES=bf16 SUFFIX=_panel instance gru gemm "chip:2,3,5,24" --set reset=before --reverse
TYPES=bf16 SUFFIX=_cluster instance lstm gemm "cluster:3,4,3,31" --lengths
TYPES=bf16 SUFFIX=_cluster instance lstm gemm "cluster:3,4,3,31" --reverse
TYPES=bf16 SUFFIX=_cluster instance e1 gemm "cluster:3,4,67 cluster:8,1,40" --reverse
TYPES=f32 SUFFIX=_head instance slstm gemm "3,4,5,2" --dim N=16 --lengths
TYPES=f32 SUFFIX=_head instance slstm gemm "3,4,5,2" --dim N=16 --reverse
TYPES=bf16 SUFFIX=_head instance lstm_heads gemm "3,4,2" --dim N=16 --set input=given --lengths
TYPES=bf16 SUFFIX=_head instance lstm_heads gemm "3,4,2" --dim N=16 --set input=given --reverse

if [[ -n ${LARGE:-} ]]; then
    SUFFIX=_large
    TYPES=f32 instance e79 "steps tile" "70001,2,3" --dim N=7 --set bias=input
    TYPES=f32 instance lstm steps "70001,2,3,2"
    TYPES=bf16 instance swiglu map "70001,1,3 large:2049:1,1024,1024"
    TYPES=bf16 instance layernorm map "70001,1,3 large:2049:1,1024,1024"
    TYPES=bf16 instance delta tile "70001,2,1 large:4800:1,1000,64" --dim N=5 --dim V=7
    TYPES="bf16 f16" instance e2 gemm "2,4,1024,64 3,3,904,7 1,3,640,33"
    SUFFIX=
fi

# States that fill a warp, and some more than one.
few="1,1,7 2,3,5 1,18,3"
few_heads="1,1,2 2,3,3 1,18,1"
few_two="1,1,7,2 2,3,5,3 1,18,3,1"
if [[ -n $full ]]; then
    SUFFIX=_warp
    for n in 16 31 32; do
        instance e79 "tile" "$few 16,65,128" --dim N=$n --set bias=input
    done
    # In f64 these do not fit in an SM's registers.
    for n in 33 64; do
        TYPES="f32 bf16 f16" instance e79 "tile" "$few 16,65,128" --dim N=$n --set bias=input
    done
    instance e79 "steps" "$few 16,65,128" --dim N=32 --set bias=input
    instance e88 "steps tile" "$few_two 3,37,5,2 2,24,5,3 4,65,128,16" --dim N=32 --dim V=32
    instance e75 "tile" "$few_two 4,65,128,16" --dim N=32
    instance e75 "tile" "$few_two 4,65,128,16" --dim N=48
    for spec in delta gated_delta linear_attention; do
        instance $spec "steps tile" "$few_heads 4,65,16" --dim N=64 --dim V=64
        instance $spec "tile" "$few_heads 4,65,16" --dim N=33 --dim V=20
        instance $spec "tile" "$few_heads 4,65,16" --dim N=17 --dim V=40
    done
    SUFFIX=
else
    instance e79 "tile" "$few" --dim N=33 --set bias=input
    instance delta "tile" "$few_heads" --dim N=33 --dim V=20
    # More blocks than multiprocessors: chunks of two segments, also where the last one is a part of one.
    instance e88 "tile" "$few_two 3,37,5,2 2,24,5,3" --dim N=32 --dim V=32
fi

# Up to 4 blocks have a multiprocessor each: they walk longer segments. A thread's columns are groups of 4.
TYPES="f32 f16" instance gated_delta tile "2,23,2 3,23,2 1,41,3" --dim N=64 --dim V=64
# Other warps make what the steps read: rows of two lengths, and numbers, from either end and for sequences of any length.
TYPES="f32 f16" instance e88 tile "1,1,7,2 2,3,5,3 1,17,5,2" --dim N=8 --dim V=4 --set conv=causal --lengths --reverse
# Chunks of two segments, of which sums are handed from step to step, from either end and for sequences of any length.
TYPES="f32 bf16" instance e88 tile "3,37,5,2 2,18,5,1" --dim N=32 --dim V=32 --lengths
TYPES="f32 bf16" instance e88 tile "3,21,5,2" --dim N=32 --dim V=32 --lengths --reverse
# Blocks of a cluster share the rows of a state: some with fewer than others, some without any.
TYPES="f32 bf16" instance e79 tile:cluster=2 "$few" --dim N=6 --set bias=input
TYPES="f32 f64" instance e79 tile:cluster=4 "$few 1,40,4 gpu:3,40,4" --dim N=33 --set bias=fixed
# One sequence leaves three of the emulator's four multiprocessors idle, two do not.
TYPES="f32 bf16" instance e79 tile "1,19,4 2,9,4" --dim N=72 --set bias=input
TYPES=f32 instance e79 tile:cluster=8 "$few" --dim N=17 --set bias=none --reverse
TYPES=f32 instance e79 tile:cluster=2 "$few" --dim N=20 --set bias=input --lengths
TYPES="f32 f16" instance e88 tile:cluster=4 "$few_two" --dim N=12 --dim V=9
# Layouts and intervals that somebody else has chosen.
TYPES="f32 bf16" instance e88 tile:interval=3:forward=2x16/1x2:backward=8x4/2x1 "1,7,4,2 3,9,4,2" --dim N=9 --dim V=20
# Segments that are replayed beside the steps back through the ones behind them, of which the last has 1, 2 or 3 steps.
TYPES="f32 bf16" instance e88 tile:interval=3 "1,7,4,2 3,9,4,2 1,14,4,2" --dim N=9 --dim V=20
TYPES="f32 bf16" instance e88 tile:interval=3:backward=8x4/1x1 "1,7,4,2 3,11,4,2" --dim N=5 --dim V=40
# Steps that are not joined: where the next segment begins is asked for ahead, by rows and as the threads have it. 6 blocks are more
# than the emulator has multiprocessors, 140 more than an H200 has.
TYPES=bf16 instance e88 tile "3,12,3,2 5,12,3,2 gpu:70,12,3,2" --dim N=64 --dim V=64
TYPES="f32 bf16" instance e88 tile "3,38,3,2 5,13,3,2 gpu:70,13,3,2" --dim N=40 --dim V=40
# Few states, of which a block walks 16 columns or rows each: parts of smaller states than 96 x 96 have a
# multiprocessor each, of which the emulator has 4; larger states are two at most there.
TYPES="f32 bf16" SUFFIX=_split instance e88 tile "1,24,3,1 1,2,5,1 1,1,3,1 gpu:2,37,5,16" --dim N=64 --dim V=64
TYPES=f64 SUFFIX=_split instance e88 tile "1,9,3,2 2,5,5,1" --dim N=96 --dim V=96
TYPES="f32 f16" SUFFIX=_split instance gated_delta tile "1,19,1 1,2,1 gpu:2,37,16" --dim N=64 --dim V=64 --lengths
TYPES=f32 SUFFIX=_split instance gated_delta tile "1,19,1 1,2,1 gpu:2,37,16" --dim N=64 --dim V=64 --reverse
TYPES=f32 SUFFIX=_split instance e88 tile "3,24,3,1 1,5,5,1 gpu:5,37,5,4" --dim N=64 --dim V=64 --packed
TYPES=f32 instance e79 tile:interval=5:warps=4 "$few" --dim N=12 --set bias=input
TYPES=f64 instance delta tile:interval=1:forward=1x32/1x1:backward=32x1/1x1 "$few_heads" --dim N=12 --dim V=17
# Warps that are no power of two; checkpoints that lie as the threads have the states, with whole vectors and what is left of them.
TYPES="f32 bf16" instance e79 tile:warps=3 "$few" --dim N=12 --set bias=input
TYPES="f32 f64" instance e88 tile:backward=8x4/1x5 "1,7,4,2 3,9,4,2" --dim N=36 --dim V=30
TYPES="f32 f16" instance gated_delta tile:forward=8x4/1x3:backward=8x4/1x3 "$few_heads" --dim N=21 --dim V=20
TYPES=f32 instance e75 tile:cluster=2 "$few_two" --dim N=9
for spec in delta gated_delta; do
    TYPES="f32 bf16" instance $spec tile:cluster=2 "$few_heads" --dim N=17 --dim V=20
done

# Walks for calls with more than 3 blocks for each multiprocessor, of which the emulator has 4 and an H200 132: forward's alone, and both.
TYPES=bf16 SUFFIX=_crowded instance e88 tile "5,26,3,3 5,13,3,5 gpu:27,13,3,15" --dim N=32 --dim V=32
TYPES=bf16 SUFFIX=_crowded instance e88 tile "5,26,3,3 5,13,3,5 gpu:27,13,3,15" --dim N=32 --dim V=32 --lengths
TYPES="bf16 f16" SUFFIX=_crowded instance delta tile "5,35,3 5,17,5 gpu:27,17,15" --dim N=32 --dim V=32
TYPES=bf16 SUFFIX=_crowded instance delta tile "5,35,3 5,17,5 gpu:27,17,15" --dim N=32 --dim V=32 --reverse
TYPES="f32 bf16" SUFFIX=_crowded instance linear_attention tile "5,35,3 5,17,5 gpu:27,17,15" --dim N=32 --dim V=32
TYPES="f32 bf16" SUFFIX=_crowded instance gated_delta tile "5,21,3 5,11,5 gpu:27,11,15" --dim N=32 --dim V=32

# One block does not hold these states. Where the device has no clusters (chip: says that) the steps are launched.
TYPES=f32 instance e79 auto "1,2,3 2,3,2 chip:2,2,2" --dim N=96 --archs 80

# Products of f32 by parts of bf16 at all sizes, k in one piece and in two, by vectors of 8 and one by one: operands whose k
# is their first axis, their last one, and the one with the other; pieces of a stacked value; optional cotangents.
TYPES=f32 instance lstm gemm "$two 2,3,8,16 1,2,520,3" --products parts
TYPES=f32 instance lstm gemm "3,17,7,5" --products parts --reverse
TYPES=f32 instance linear_act map "$two 3,180,8,16" --products parts
TYPES=f32 instance complex_linear auto "2,5,3,2 3,180,8,4" --products parts
TYPES=f32 instance e79 tile "$few 4,130,8" --dim N=8 --set bias=input --products parts

# Products of 16 bits with what is computed from them, and with what makes their operands, at all sizes: one tile, more than there
# are multiprocessors, rows and columns that end within one, a depth of less than a fetch and of several; and rows that are no
# multiples of 16 bytes.
TYPES="bf16 f16" instance linear_act map "$two 1,1,8,8 2,65,72,264 gpu:2,65,328,264 gpu:3,130,72,520 1,1300,16,72" --products fused
SUFFIX=_waves TYPES=bf16 instance linear_act map "1,1,8,8 4,275,264,8 gpu:4,275,3848,8" --products fused
TYPES=bf16 instance linear_act map "2,65,72,264" --products fused --set act=gelu_tanh --reverse
TYPES=f16 instance linear_act map "2,65,72,264" --products fused --set act=silu
TYPES=bf16 instance linear_act map "2,65,72,264" --products fused --set act=none

# A vector of bound size would fit on an SM; its elements walk on their own all the same.
TYPES="f32 bf16" instance hgrn auto "2,5 1,34" --dim D=37

# What bench/workloads.txt times and no line above has, bound as there: few states, and, of some walks on chip, more than an H200
# has multiprocessors. Not sLSTM in bf16, whose divisions leave nothing that roundings do not decide; it is above in f32.
for bias in fixed none input; do
    TYPES=bf16 instance e79 tile "2,11,5 5,3,3 gpu:140,3,3" --dim N=32 --set bias=$bias
    TYPES=bf16 instance e79 tile "2,7,5" --dim N=64 --set bias=$bias
done
TYPES=f32 instance e79 tile "2,11,5" --dim N=32 --set bias=input
TYPES=bf16 instance e79 tile "2,4,5" --dim N=96 --set bias=fixed
TYPES=bf16 instance e79 tile "1,4,5 gpu:2,4,5" --dim N=128 --set bias=fixed
for spec in delta gated_delta linear_attention; do
    TYPES=bf16 instance $spec tile "2,23,2 3,5,2 gpu:70,5,2" --dim N=64 --dim V=64
done
TYPES=bf16 instance hgrn scan "2,9 1,37" --dim D=2048
TYPES=bf16 instance causal_attention "window attention" "1,70,2 1,2,1,300,290 gpu:1,2,1,600,590 gpu:2,450,3" \
    --dim N=64 --dim V=64
TYPES=f16 instance causal_attention attention "1,3,1 gpu:1,300,2 gpu:1,1,2,300,299" \
    --dim N=128 --dim V=128 --dim G=3
TYPES=bf16 instance window_attention "window attention" "1,70,2" --dim N=64 --dim V=64 --dim W=256

# Every spec with every value of its options, at small sizes.
if [[ -n $full ]]; then
    # Nor there in bf16: Moneta and Trellis, as above; and linear attention over a running total, which comes
    # near 0. What roundings leave of their gradients is undecided at all of these sizes.
    undecided=^$
    [[ -n ${TYPES:-} ]] || undecided='^(moneta|trellis|linear_attention_auto_bf16_normaliser_total)_.*variant '
    TYPES=${TYPES:-f32 bf16} bash "$(dirname "$0")/collection.sh" |
        awk -v undecided="$undecided" '!($0 ~ undecided && $0 ~ /--dtype bf16/)'
fi
