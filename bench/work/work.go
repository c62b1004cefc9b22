// Go: maps, sorting, regular expressions, compression, goroutines and channels, for ever.
package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"regexp"
	"sort"
	"strconv"
)

type row struct {
	A int
	S string
}

func fib(n int) int {
	if n < 2 {
		return n
	}
	return fib(n-1) + fib(n-2)
}

func turn(n int) int {
	rows := map[string]row{}
	for i := 0; i < 2000; i++ {
		rows[strconv.Itoa(i*7919%1000)] = row{i, strconv.Itoa(i)}
	}
	list := make([]row, 0, len(rows))
	for _, r := range rows {
		list = append(list, r)
	}
	sort.Slice(list, func(i, j int) bool { return list[i].S < list[j].S })
	text, _ := json.Marshal(list)
	regexp.MustCompile(`"A":(\d+)`).FindAll(text, -1)
	var out bytes.Buffer
	writer := gzip.NewWriter(&out)
	writer.Write(text)
	writer.Close()
	return out.Len() + fib(18) + n
}

func main() {
	results := make(chan int)
	for n := 0; n < 3; n++ {
		go func(n int) {
			for {
				results <- turn(n)
			}
		}(n)
	}
	for range results {
	}
}
