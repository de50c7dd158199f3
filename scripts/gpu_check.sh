#!/usr/bin/env bash
# Checks the package on a machine with a CUDA device: correctness, benchmark, compute-sanitizer, in order of worth.
#
#   scripts/gpu_check.sh [--out DIR] [--steps A,B] [--minutes N] [--wheels DIR] [--work DIR] [--quick] [--dry-run]
#
# Results are kept in --work (/tmp/dacergnn_gpu_check), beside what is installed and built there; after every step all
# of them are copied to --out, at most eight files. Without --steps, a call goes on with the steps that no earlier call
# has finished; named steps run in the order of their names, and again if they are done. A call takes at most
# --minutes (9). --wheels (build/wheels) is what `make wheels` made. With --dry-run it prints what it would run.
# Exit status: 0, or 1 where a step failed or was cut off.
set -uo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python=${PYTHON:-python3}
wheels='' out='' minutes=9 steps='' quick='' dry='' work=/tmp/dacergnn_gpu_check
known='install rates first bench profile tests alone memcheck racecheck kernels tf32 bfloat16 compiled'

fail() { echo "gpu_check.sh: $*" >&2 && exit 2; }
usage() {
    sed -n '2,11s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
    exit 2
}
while (($#)); do
    case $1 in
        --wheels | --out | --minutes | --steps | --work)
            (($# > 1)) || usage
            printf -v "${1#--}" %s "$2"
            shift 2
            ;;
        --quick) quick=1 && shift ;;
        --dry-run) dry=1 && shift ;;
        *)
            echo "gpu_check.sh: unknown option '$1'" >&2
            usage
            ;;
    esac
done
[[ $minutes =~ ^[0-9]+$ ]] || fail "--minutes '$minutes' is no whole number"
[[ -z $wheels || -d $wheels ]] || fail "there is no folder '$wheels'; make one with 'make wheels'"
for name in ${steps//,/ }; do
    [[ " $known " == *" $name "* ]] || fail "no step '$name'; there are: $known"
done
wheels=${wheels:-$root/build/wheels}
[[ -n $dry ]] || wheels=$(cd "$wheels" 2>/dev/null && pwd)

deadline=$((SECONDS + 60 * minutes))
failed=0 child=''
kept=$work/results record=$work/done
# The package is the installed one; tests and scripts come from the checkout, which Python would else look into first.
export PYTHONSAFEPATH=1 PYTHONPATH=$work/site:$root
export DACERGNN_CACHE_DIR=$work/cache PYTHONUNBUFFERED=1 DGLBACKEND=pytorch
# A newly set up toolkit may not be on PATH.
[[ -d /usr/local/cuda/bin ]] && export PATH=$PATH:/usr/local/cuda/bin
cores=$(nproc 2>/dev/null || echo 4)
workers=$((cores < 12 ? cores : 12))

say() { if [[ -n $dry ]]; then echo "$*"; else echo "$*" | tee -a "$kept/summary.txt"; fi; }
is_done() { [[ -z $dry ]] && grep -qx "$1" "$record" 2>/dev/null; }
copy_out() { if [[ -n $out && -z $dry ]]; then cp -f "$kept"/* "$out"/; fi; }

# step NAME SECONDS LOG COMMAND...: run one step for so long at most, into a log, and say how it ended.
step() {
    local name=$1 limit=$2 log=$3
    shift 3
    if [[ -n $dry ]]; then
        echo "$name (at most $limit s): $*"
        return 0
    fi
    local left=$((deadline - SECONDS)) began=$SECONDS code=0
    if ((left < 20)); then
        say "$name: left out, no time" && failed=1
        return 1
    fi
    ((limit < left)) || limit=$left
    echo "== $name: $*" >>"$kept/$log"
    timeout -k 10 "$limit" "$@" >>"$kept/$log" 2>&1 &
    child=$!
    wait "$child" || code=$?
    child=''
    case $code in
        0) say "$name: ok, $((SECONDS - began)) s" && echo "$name" >>"$record" ;;
        75) say "$name: cases are left after $((SECONDS - began)) s; call again" && failed=1 ;;
        124 | 137) say "$name: cut off after $((SECONDS - began)) s" && failed=1 ;;
        *) say "$name: FAILED with $code, $((SECONDS - began)) s; see $log" && failed=1 ;;
    esac
    grep -E '^(FAILED|ERROR)|^=+ .* in [0-9.]+s|========= ERROR SUMMARY' "$kept/$log" | sort -u | tail -n 15 | cut -c1-200
    copy_out
    return "$code"
}

# measure NAME SECONDS COMMAND...: run a step that ends by itself, early enough to write its tables.
measure() {
    local name=$1 limit=$2 left=$((deadline - SECONDS))
    shift 2
    [[ -z $dry ]] || left=$((60 * minutes)) # what a dry run says depends on no clock
    ((limit < left)) || limit=$left
    step "$name" "$limit" bench.log "$@" --time-limit "$((limit > 30 ? limit - 25 : 5))"
}

# sanitize TOOL: run compute-sanitizer, if it can attach to this device, over the tests that are small enough.
# A tiny program tells whether it can; the tool's own errors would look like those of kernels.
sanitize() {
    local tool=("${sanitizer[@]}" --tool "$1") tiny='import torch; torch.ones(1, device="cuda").add_(1).cpu()'
    if [[ -z $dry ]] && ((deadline - SECONDS > 110)) && ! timeout -k 10 90 "${tool[@]}" "$python" -c "$tiny" >>"$kept/tests.log" 2>&1; then
        say "$1: not possible here; see tests.log" && echo "$1" >>"$record"
        return 0
    fi
    step "$1" 180 tests.log "${tool[@]}" "${pytest[@]}" tests/gpu -m sanitizer
}

run() {
    case $1 in
        install) step install 120 tests.log "$python" "$root/scripts/install_wheels.py" "$wheels" "$work/site" ;;
        rates) step rates 90 bench.log "$python" -m dacergnn env --device cuda --save "$rates" ;;
        # Says within a few minutes whether kernels are right at all.
        first) step first 240 tests.log "${pytest[@]}" tests/gpu/test_layers.py -k same_as_on_the_processor -n 3 ;;
        bench) measure bench 540 "${bench[@]}" --build-ahead --level O2,hector --against pyg,dgl,torch,grouped --data "$graphs" ;;
        profile) measure profile 300 "$python" -m benchmarks gpu_profile --json "$kept/profile.jsonl" \
            --markdown "$kept/profile.md" --data aifb,mag,am,fb15k ;;
        tests) step tests 420 tests.log "${pytest[@]}" tests/gpu -m "not alone" -n "$workers" --dist worksteal "${few[@]}" ;;
        alone) step alone 120 tests.log "${pytest[@]}" tests/gpu -m alone ;;
        memcheck | racecheck) sanitize "$1" ;;
        kernels) step kernels 300 tests.log env DACERGNN_KERNELS_ON_DEVICE=1 "${pytest[@]}" tests/cuda -n "$workers" --dist worksteal ;;
        tf32 | bfloat16) measure "$1" 180 "${bench[@]}" --build-ahead --data 'mag~,am~,fb15k~,aifb~' --against pyg,dgl,torch,grouped --dtype "$1" --markdown "$kept/$1.md" ;;
        compiled) measure compiled 300 "${bench[@]}" --data "$graphs" --against pyg --compiled --trial-limit 90 \
            --json "$kept/compiled.jsonl" --markdown "$kept/compiled.md" ;;
    esac
}

# Without the tree before the installed package, and without warnings of other releases being errors.
pytest=("$python" -m pytest -q --tb=short -o pythonpath= -o filterwarnings=default -p no:cacheprovider)
if [[ -z $dry ]]; then
    mkdir -p "$kept" "$work" || exit 1
    [[ -z $out ]] || { mkdir -p "$out" && out=$(cd "$out" && pwd); } || exit 1
    cd "$root" || exit 1
    trap copy_out EXIT
    trap '[[ -z $child ]] || kill "$child"; say "ended from outside after $SECONDS s"; exit 1' TERM INT HUP
    say "$(date -u +%FT%TZ) $(git rev-parse --short HEAD 2>/dev/null) ${steps:-all steps that are left}"
    say "$(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>&1 | head -n 4), $cores cores"
    found=$("$python" "$root/scripts/gpu_look.py" "$wheels" 2>&1)
    code=$?
    say "$found"
    ((code == 0)) || exit 1
fi

few=()
graphs='mag~,am~,wikikg2~,bgs~,biokg~,fb15k~,aifb~,mutag~' # large ones first, since these are what a device is for
[[ -n $quick ]] && few=(-k "small or same_as or replays") && graphs='am~,fb15k~,aifb~'
checker=$(command -v compute-sanitizer || echo /usr/local/cuda/compute-sanitizer/compute-sanitizer)
# Every tensor in an allocation of its own; our kernels alone are looked at.
sanitizer=(env PYTORCH_NO_CUDA_MEMORY_CACHING=1 "$checker" --kernel-name kns=dacergnn --report-api-errors no --error-exitcode 9)
# Ours are compiled by the rates that `rates` has measured.
rates=$kept/rates.json
bench=("$python" -m benchmarks relational --device cuda --repeat 20 --budget 2 --json "$kept/bench.jsonl" --markdown "$kept/bench.md")

todo=${steps//,/ }
if [[ -z $todo ]]; then
    for name in $known; do
        [[ -n $quick && " tf32 bfloat16 compiled " == *" $name "* ]] || is_done "$name" || todo+=" $name"
    done
elif [[ " $todo " != *" install "* ]] && ! is_done install && [[ -z $dry ]]; then
    todo="install $todo"  # the machine may be another one than at the last call
fi
for name in $todo; do
    if [[ $name == install && -z $wheels && -z $dry ]]; then
        say "install: there are no wheels, so the packages of this machine are used"
        continue
    fi
    [[ $name == rates ]] || [[ ! -s $rates ]] || [[ " ${bench[*]} " == *" --rates "* ]] || bench+=(--rates "$rates")
    run "$name" || [[ $name != install ]] || { say "Nothing runs without the packages." && exit 1; }
    [[ $name != install || -n $dry ]] || say "package: $("$python" -c 'import dacergnn; print(dacergnn.__file__)' 2>&1 | tail -n 1)"
done
[[ -n $dry ]] || say "done after $SECONDS s, $([[ $failed == 0 ]] && echo all ok || echo not all ok)"
exit "$failed"
