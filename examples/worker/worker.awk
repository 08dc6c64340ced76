# SPDX-License-Identifier: MIT
# gawk -f worker.awk FOLLOW OUTPUT NAME
# mawk -W interactive -f worker.awk FOLLOW OUTPUT NAME
#
# At least once: awk asks for more, and so acks, when it has done all that it has read.
# mawk needs -W interactive: otherwise it reads on until its buffer is full. A signal while
# it waits ends awk, also Ctrl-Z; start it again, nothing is lost.
BEGIN {
	output = ARGV[2]
	name = ARGV[3]
	ARGC = 2
}
{
	print name, $0 >>output # the work
	fflush(output)
}
