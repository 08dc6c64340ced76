#!/usr/bin/env perl
# SPDX-License-Identifier: MIT
# worker.pl FOLLOW OUTPUT NAME - at least once: Perl asks for more, and so acks, when all
# that it has read was in the loop.
use strict;
use warnings;
use IO::Handle;

my ($follow, $output, $name) = @ARGV;
open(my $messages, '<', $follow) or die "$follow: $!\n";
open(my $done, '>>', $output) or die "$output: $!\n";
$done->autoflush;    # what is in a buffer is not done yet
while (my $message = <$messages>) {
	print $done "$name $message" or die "$output: $!\n";    # the work
}
