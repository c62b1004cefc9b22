# perl: hashes, sorting, regular expressions, recursion, for ever.
use strict;
sub fib { my $n = shift; return $n < 2 ? $n : fib($n - 1) + fib($n - 2) }
while (1) {
    my %h;
    $h{"k$_"} = ($_ * 7919) % 1000 for 1 .. 2000;
    my $text = join ",", sort { $h{$a} <=> $h{$b} || $a cmp $b } keys %h;
    $text =~ s/k(\d+)/x$1y/g;
    my @parts = map { uc } split /,/, $text;
    fib(13);
    eval { die { parts => scalar @parts } };
}
