#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# tests/references.tsv: every sentence of the three systems whose replay is brought to files
# has tests that show it, or a reason why it is nothing for files.

load lib

TABLE=$BATS_TEST_DIRNAME/../references.tsv

# sentences SOURCE - how many different ones of it are in the table.
sentences() { grep -v '^#' "$TABLE" | cut -f 1,2 | sort -u | grep -c "^$1"$'\t'; }

@test "each sentence of the three has an entry" {
	is "$(sentences queen) $(sentences pubsub) $(sentences nolag)" '49 68 34'
	is "$(grep -v '^#' "$TABLE" | cut -f 1 | sort -u | paste -sd ' ')" 'nolag pubsub queen'
	is "$(grep -v '^#' "$TABLE" | cut -f 1,2 | sort | uniq -d)" ''
}

@test "each entry names tests that exist, or says why there is none" {
	perl -e '
		my ($table, $dir) = @ARGV;
		my ($bad, %names) = (0);
		for my $path (glob "$dir/*.bats") {
			my ($file) = $path =~ m{([^/]+)\z};
			open(my $tests, "<", $path) or die "$path: $!\n";
			while (<$tests>) { $names{"$file: $1"} = 1 if /^\@test "(.*)" \{$/ }
		}
		open(my $rows, "<", $table) or die "$table: $!\n";
		while (<$rows>) {
			next if /^#/;
			chomp;
			my ($source, $sentence, @where) = split /\t/, $_, -1;
			my $none = @where == 1 && $where[0] =~ /^n\/a: \w/;
			print("line $.: no test and no reason\n"), $bad = 1 unless @where && $sentence;
			for (@where) {
				$none or $names{$_} or
					print("line $.: there is no \"$_\"\n"), $bad = 1;
			}
		}
		exit $bad;
	' "$TABLE" "$BATS_TEST_DIRNAME"
}
