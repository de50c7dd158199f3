#!/usr/bin/env bash
# Checks the package on a machine with a CUDA device: correctness, compute-sanitizer, benchmark, in order of worth.
#
#   scripts/gpu_check.sh --wheels DIR --out DIR [--minutes N] [--steps A,B] [--quick] [--work DIR] [--dry-run]
#
# Needs a CUDA toolkit (nvcc), Python 3.11 to 3.13 with torch, and a folder of wheels (`make wheels`); no network.
# What it installs and builds goes to --work, where a second run finds it again; what it found goes to --out: at most
# seven files. With --dry-run it prints what it would run. Exit status: 0, or 1 where a step failed or was cut off.
set -uo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python=${PYTHON:-python3}
wheels='' out='' minutes=25 steps='' quick='' dry='' work=/tmp/dacergnn_gpu_check

usage() {
    sed -n '2,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
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
[[ $minutes =~ ^[0-9]+$ ]] || { echo "gpu_check.sh: --minutes '$minutes' is no whole number" >&2 && exit 2; }
[[ -n $wheels && -n $out ]] || { echo "gpu_check.sh: --wheels and --out are needed" >&2 && usage; }
[[ -n $dry || -d $wheels ]] || { echo "gpu_check.sh: there is no folder '$wheels'; make one with 'make wheels'" >&2 && exit 2; }

known='install first build tests alone bench kernels memcheck racecheck tf32 bfloat16 compiled'
for name in ${steps//,/ }; do
    [[ " $known " == *" $name "* ]] || { echo "gpu_check.sh: no step '$name'; there are: $known" >&2 && exit 2; }
done

deadline=$((SECONDS + 60 * minutes))
failed=0
# The package is the installed one; tests and scripts come from the checkout, which Python would else look into first.
export PYTHONSAFEPATH=1 PYTHONPATH=$work/site:$root
export DACERGNN_CACHE_DIR=$work/cache PYTHONUNBUFFERED=1 DGLBACKEND=pytorch
cores=$(nproc 2>/dev/null || echo 4)
workers=$((cores < 12 ? cores : 12))

say() { if [[ -n $dry ]]; then echo "$*"; else echo "$*" | tee -a "$out/summary.txt"; fi; }

# wanted NAME: whether a step is among those to run.
wanted() { [[ -z $steps || ",$steps," == *",$1,"* ]]; }

# step NAME SECONDS LOG COMMAND...: run one step for so long at most, into a log, and say how it ended.
step() {
    local name=$1 limit=$2 log=$3
    shift 3
    wanted "$name" || return 0
    if [[ -n $dry ]]; then
        echo "$name (at most $limit s): $*"
        return 0
    fi
    local left=$((deadline - SECONDS)) began=$SECONDS code=0
    if ((left < 20)); then
        say "$name: left out, no time" && failed=1
        return 0
    fi
    ((limit < left)) || limit=$left
    echo "== $name: $*" >>"$out/$log"
    timeout -k 10 "$limit" "$@" >>"$out/$log" 2>&1 || code=$?
    case $code in
        0) say "$name: ok, $((SECONDS - began)) s" ;;
        124 | 137) say "$name: cut off after $((SECONDS - began)) s" && failed=1 ;;
        *) say "$name: FAILED with $code, $((SECONDS - began)) s; see $log" && failed=1 ;;
    esac
    grep -E '^(FAILED|ERROR)|^=+ .* in [0-9.]+s|========= ERROR SUMMARY' "$out/$log" | sort -u | tail -n 15 | cut -c1-200
}

# within SECONDS: so many, or what is left without the time to write tables.
within() {
    local left=$((deadline - SECONDS - 25))
    ((left > 1)) || left=1
    echo $(($1 < left ? $1 : left))
}

# sanitize TOOL: run compute-sanitizer, if it can attach to this device, over the tests that are small enough.
# A tiny program tells whether it can; the tool's own errors would look like those of kernels.
sanitize() {
    local tool=("${sanitizer[@]}" --tool "$1") tiny='import torch; torch.ones(1, device="cuda").add_(1).cpu()'
    wanted "$1" || return 0
    if [[ -z $dry ]] && ((deadline - SECONDS > 110)) && ! timeout -k 10 90 "${tool[@]}" "$python" -c "$tiny" >>"$out/sanitizer.log" 2>&1; then
        say "$1: not possible here; see sanitizer.log"
        return 0
    fi
    step "$1" 180 sanitizer.log "${tool[@]}" "${pytest[@]}" tests/gpu -m sanitizer
}

# build_kernels: those of all steps of the benchmark.
build_kernels() {
    local code=0 options
    for options in "--data $graphs" "${short[@]}"; do
        if [[ -n $dry ]]; then
            echo "build (beside the tests): ${bench[*]} --build $options"
        elif ((deadline - SECONDS < 20)); then
            code=124
        else  # the options are words
            nice -n 5 timeout -k 10 $((deadline - SECONDS)) "${bench[@]}" --build $options || code=$?
        fi
    done
    return "$code"
}

# Without the tree before the installed package, and without warnings of other releases being errors.
pytest=("$python" -m pytest -q --tb=short -o pythonpath= -o filterwarnings=default -p no:cacheprovider)
if [[ -z $dry ]]; then
    mkdir -p "$out" "$work"
    out=$(cd "$out" && pwd)
    wheels=$(cd "$wheels" && pwd)
    cd "$root" || exit 1
    # A newly set up toolkit may not be on PATH.
    [[ -d /usr/local/cuda/bin ]] && export PATH=$PATH:/usr/local/cuda/bin
    checker=$(command -v compute-sanitizer || echo /usr/local/cuda/compute-sanitizer/compute-sanitizer)
    say "$(date -u +%FT%TZ) $(git rev-parse --short HEAD 2>/dev/null)"
    say "$(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>&1 | head -n 4)"
    say "$(nvcc --version 2>&1 | tail -n 1), $("$python" --version), torch $("$python" -c 'import torch; print(torch.__version__)' 2>&1 | tail -n 1), $cores cores"
fi

few=()
graphs=aifb,fb15k,mag,am,wikikg2,biokg,mutag,bgs
[[ -n $quick ]] && few=(-k "small or same_as or replays") && graphs=aifb,fb15k,am
bench=("$python" "$root/benchmarks/gpu.py" --json "$out/bench.jsonl" --markdown "$out/bench.md")
# Every tensor in an allocation of its own; our kernels alone are looked at.
sanitizer=(env PYTORCH_NO_CUDA_MEMORY_CACHING=1 "${checker:-compute-sanitizer}" --kernel-name kns=dacergnn)
sanitizer+=(--report-api-errors no --error-exitcode 9)

some='--data aifb,am,fb15k,mag --level O2'
short=("--dtype tf32 $some" "--dtype bfloat16 $some")
[[ -n $quick ]] && short=()

step install 120 tests.log "$python" "$root/scripts/install_wheels.py" "$wheels" "$work/site"
[[ -n $dry ]] || say "package: $("$python" -c 'import dacergnn; print(dacergnn.__file__)' 2>&1 | tail -n 1)"
# Says within a few minutes whether kernels are right at all.
step first 240 tests.log "${pytest[@]}" tests/gpu/test_layers.py -k same_as_on_the_processor -n 3
# The kernels of the benchmark, while tests run.
if wanted build && [[ -n $dry ]]; then
    build_kernels
elif wanted build; then
    build_kernels >>"$out/bench.log" 2>&1 &
    build=$!
fi
step tests 420 tests.log "${pytest[@]}" tests/gpu -m "not alone" -n "$workers" --dist worksteal "${few[@]}"
if [[ -n ${build:-} ]]; then
    wait "$build" && say "build: ok, until $SECONDS s" || { say "build: FAILED; see bench.log" && failed=1; }
fi
step alone 120 tests.log "${pytest[@]}" tests/gpu -m alone
step bench 540 bench.log "${bench[@]}" --data "$graphs" --time-limit "$(within 520)"
sanitize memcheck
sanitize racecheck
step kernels 300 kernels.log env DACERGNN_KERNELS_ON_DEVICE=1 "${pytest[@]}" tests/cuda -n "$workers" --dist worksteal
if [[ -z $quick ]]; then
    step tf32 240 bench.log "${bench[@]}" ${short[0]} --time-limit "$(within 220)"
    step bfloat16 240 bench.log "${bench[@]}" ${short[1]} --time-limit "$(within 220)"
    step compiled 300 bench.log "${bench[@]}" --against compiled --data "$graphs" --level O2 --time-limit "$(within 280)" --case-limit 90
fi
[[ -n $dry ]] || say "done after $SECONDS s, $([[ $failed == 0 ]] && echo all ok || echo not all ok)"
exit "$failed"
