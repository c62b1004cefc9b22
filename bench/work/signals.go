// Go: goroutines in loops without a call (the runtime preempts them by SIGURG), timers, garbage, and a signal of our own a thousand times a second.
// Prints "ready"; then for each line of standard input, a number of seconds, turns a second.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"
)

var turns, ticks int64
var sink [64][]byte

func spin(n uint64) uint64 {
	for i := 0; i < 200000; i++ {
		n = n*6364136223846793005 + 1442695040888963407
	}
	return n
}

func work(n int) {
	for x := uint64(n); ; {
		x = spin(x)
		sink[n%64] = make([]byte, 4096+x%4096)
		atomic.AddInt64(&turns, 1)
	}
}

func timer() {
	atomic.AddInt64(&ticks, 1)
	time.AfterFunc(2*time.Millisecond, timer)
}

func main() {
	for n := 0; n < 16; n++ {
		go work(n)
	}
	for n := 0; n < 50; n++ {
		timer()
	}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGUSR1)
	go func() {
		for range signals {
		}
	}()
	go func() {
		for range time.Tick(time.Millisecond) {
			syscall.Kill(os.Getpid(), syscall.SIGUSR1)
		}
	}()
	time.Sleep(500 * time.Millisecond)
	fmt.Println("ready")
	for {
		var seconds float64
		if _, err := fmt.Scan(&seconds); err != nil {
			return
		}
		start, before := time.Now(), atomic.LoadInt64(&turns)
		time.Sleep(time.Duration(seconds * 1e9))
		fmt.Println(float64(atomic.LoadInt64(&turns)-before) / time.Since(start).Seconds())
	}
}
