# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154 # QUEENFS and the like are of `run`
# What the measures share: daemons that are started and ended, slices that take turns,
# values that become a table.

tmp=$(mktemp -d "${BENCH_DIR:-/var/tmp}/queenfs-bench.XXXXXX")
mnt=$tmp/mnt       # queenfs
twin=$tmp/twin     # a second one, where two stores are compared
empty=$tmp/empty   # emptyfs
values=$tmp/values # one line per measured value: see record
skips=$tmp/skips   # what could not be measured, and why
out=$tmp/out       # of the last driver
mkdir "$mnt" "$twin" "$empty"
: >"$values"
: >"$skips"

declare -A daemon_pid=() # of a mount point
declare -A slice_of=()   # what slices() has seen
all_cpus=$(taskset -cp $$ | sed 's/.*: //')
SOURCE_BYTES=$((256 << 20)) # what `source` of emptyfs holds

die() {
	echo "bench: $*" >&2
	exit 1
}

# skip WHAT WHY: is said once, below the table.
skip() {
	grep -qxF "$1: $2" "$skips" || echo "$1: $2" >>"$skips"
}

# --- daemons ----------------------------------------------------------------------------

# mounted DIR FILE: waits until FILE is there, or the daemon is not.
mounted() {
	local i
	for ((i = 0; i < 5000; i++)); do
		[[ ! -e $1/$2 ]] || return 0
		kill -0 "${daemon_pid[$1]}" 2>/dev/null || break
		sleep 0.002
	done
	cat "$tmp/log" >&2
	die "no $2 in the mount"
}

# ended DIR: SIGTERM, and what is needed if that does not help. Returns its status.
ended() {
	local i status=0 pid=${daemon_pid[$1]}
	unset "daemon_pid[$1]"
	kill "$pid" 2>/dev/null || true
	for ((i = 0; i < 1000; i++)); do
		kill -0 "$pid" 2>/dev/null || break
		sleep 0.01
	done
	if ((i == 1000)); then
		kill -KILL "$pid" 2>/dev/null || true
	fi
	wait "$pid" 2>/dev/null || status=$?
	if mountpoint -q "$1" || [[ ! -r $1 ]]; then
		fusermount3 -u -z "$1" || true
	fi
	return "$status"
}

emptyfs_start() {
	"$BENCH_BIN/emptyfs" "$empty" "$SOURCE_BYTES" >"$tmp/log" 2>&1 &
	daemon_pid[$empty]=$!
	mounted "$empty" sink
}

# store_open disk|os STORE [DIR]: the daemon on a store that may be there already.
store_open() {
	local dir=${3:-$mnt}
	printf '[store]\ndurability = %s\n' "$1" >"$tmp/ini"
	"$QUEENFS" -f -c "$tmp/ini" -s "$2" "$dir" >"$tmp/log" 2>&1 &
	daemon_pid[$dir]=$!
	mounted "$dir" version
}

# store_close DIR
store_close() {
	local status=0 dir=$1
	ended "$dir" || status=$?
	((status == 0)) || { cat "$tmp/log" >&2; die "queenfs ended with status $status"; }
}

# queenfs_start disk|os: a new store with one queue, q.
queenfs_start() {
	rm -f "$tmp"/store*
	store_open "$1" "$tmp/store"
	mkdir "$mnt/queues/q"
}

queenfs_stop() {
	store_close "$mnt"
	rm -f "$tmp"/store*
}

# daemon_kib VmRSS|VmHWM [DIR]: what the daemon holds, or has held at most.
daemon_kib() {
	awk -v key="$1:" '$1 == key { print $2 }' "/proc/${daemon_pid[${2:-$mnt}]}/status"
}

# memory_record W: the most that the daemon has held in this measure.
memory_record() {
	record "$1 memory of the daemon, most" MiB "$(ratio "$(daemon_kib VmHWM)" 1024)" "<=64" \
		"SQLite's page cache, recent segments, requests under way"
}

cleanup() {
	local dir
	peer_stop
	for dir in "${!daemon_pid[@]}"; do
		ended "$dir" || true
	done
	rm -rf --one-file-system "$tmp"
}
trap cleanup EXIT
trap 'exit 1' INT TERM HUP

# --- values -----------------------------------------------------------------------------

# record NAME UNIT VALUE [GOAL [LIMIT]]: GOAL is >=N or <=N, LIMIT the resource that a
# better figure would need more of.
record() {
	[[ $3 =~ ^-?[0-9.]+$ ]] || die "$1: no value"
	printf '%s\t%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "${4:-}" "${5:-}" >>"$values"
}

# record_pair NAME UNIT FLOOR_NAME OURS_NAME [GOAL [LIMIT]]: both sides and ours / floor.
record_pair() {
	record "$1: $4" "$2" "$ours"
	record_against "$@"
}

# record_against: the same where our side has been recorded before.
record_against() {
	record "$1: $3" "$2" "$floor"
	record "$1: $4 / $3" ratio "$(ratio "$ours" "$floor")" "${5:-}" "${6:-}"
}

# drive PROGRAM ARGS...: a driver; what it found is asked with `found KEY`.
drive() {
	local program=$1
	shift
	timeout 120 "$BENCH_BIN/$program" "$@" >"$out" || die "$program $* failed"
}

found() {
	awk -v key="$1" '$1 == key { print $2 }' "$out"
}

ratio() {
	awk -v a="$1" -v b="$2" 'BEGIN { printf "%.3f", (b > 0) ? a / b : 0 }'
}

# milliseconds COMMAND...: how long it takes, into `took`.
milliseconds() {
	local began=${EPOCHREALTIME/./}
	"$@" >/dev/null || die "$* failed"
	# shellcheck disable=SC2034 # the caller's
	took=$(ratio $((${EPOCHREALTIME/./} - began)) 1000)
}

median() {
	printf '%s\n' "$@" | sort -g | awk '
	{ v[NR] = $1 }
	END { printf "%.6f", (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2 }'
}

# slices N FLOOR OURS: calls the two in turns, N times each; they set floor and ours, and
# floor99 and ours99 if they like. Leaves the medians there.
slices() {
	local i key sides
	slice_of=()
	# shellcheck disable=SC2034 # used by name
	floor99=0 ours99=0
	for ((i = 0; i < $1; i++)); do
		sides=("$2" "$3")
		(((i + round) % 2)) || sides=("$3" "$2")
		"${sides[0]}"
		"${sides[1]}"
		for key in floor ours floor99 ours99; do
			slice_of[$key]+=" ${!key}"
		done
	done
	for key in floor ours floor99 ours99; do
		# shellcheck disable=SC2086 # words are what is meant
		printf -v "$key" %s "$(median ${slice_of[$key]})"
	done
}

# on_one_cpu COMMAND...: with all daemons on the same CPU. Where the scheduler puts the two
# ends of a request makes a factor of five for emptyfs, at random; this leaves the work.
on_one_cpu() {
	cpus_set "${all_cpus%%[-,]*}"
	"$@"
	cpus_set "$all_cpus"
}

cpus_set() {
	local pid
	for pid in $$ "${daemon_pid[@]}"; do
		taskset -acp "$1" "$pid" >/dev/null
	done
}

# --- the table --------------------------------------------------------------------------

# summary: of each name, in order of appearance: unit, median, min, max, goal, verdict,
# limit.
summary() {
	awk -F '\t' '
	!($1 in count) { order[++names] = $1; unit[$1] = $2; goal[$1] = $4; limit[$1] = $5 }
	{
		# kept sorted: moves the larger ones up
		for (i = ++count[$1]; i > 1 && value[$1, i - 1] > $3 + 0; i--)
			value[$1, i] = value[$1, i - 1]
		value[$1, i] = $3 + 0
	}
	function verdict(median, aim) {
		if (aim == "")
			return ""
		if (aim ~ /^>=/)
			return median >= substr(aim, 3) + 0 ? "met" : "missed"
		return median <= substr(aim, 3) + 0 ? "met" : "missed"
	}
	END {
		for (k = 1; k <= names; k++) {
			name = order[k]
			n = count[name]
			median = (value[name, int((n + 1) / 2)] + value[name, int(n / 2) + 1]) / 2
			printf "%s\t%s\t%.6g\t%.6g\t%.6g\t%s\t%s\t%s\n", name, unit[name],
				median, value[name, 1], value[name, n], goal[name],
				verdict(median, goal[name]), limit[name]
		}
	}' "$values"
}

table() {
	summary | grep -v '^P[0-9] ' | awk -F '\t' '
	function plain(n) {
		return n >= 1000 ? sprintf("%.0f", n) : sprintf("%.3g", n)
	}
	BEGIN {
		format = "%-50s %7s %10s %10s %10s  %-8s %-7s %s\n"
		printf format, "measure", "unit", "median", "min", "max", "goal", "", "limited by"
	}
	{ printf format, $1, $2, plain($3), plain($4), plain($5), $6, $7, $8 }'
	sed 's/^/not measured: /' "$skips"
}

csv() {
	echo "measure,unit,median,min,max,goal,verdict,limited_by"
	summary | sed 's/^[^\t]*/"&"/; s/[^\t]*$/"&"/; s/\t/,/g'
}
