// Go: an HTTP server and its clients, timers, channels, files and subprocesses, until a file is there, for a second at
// least. Every answer is computed again and compared.
// usage: server FILE
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

const (
	least   = time.Second
	clients = 4
	// More than fits into a socket's buffers.
	size = 3_000_000
	tick = 5 * time.Millisecond
)

var (
	began  = time.Now()
	end    string
	wrongs atomic.Int64
)

func going() bool {
	_, err := os.Stat(end)
	return wrongs.Load() == 0 && (time.Since(began) < least || err != nil)
}

func wrong(format string, arguments ...any) {
	if wrongs.Add(1) <= 10 {
		fmt.Fprintf(os.Stderr, "FAIL: "+format+"\n", arguments...)
	}
}

func hash(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

func content(path string) []byte {
	return bytes.Repeat([]byte(path), size/len(path))
}

// Asks for one path after the other, and sends back what it has got; over one connection, or a new one for each turn.
func ask(address string, number int) {
	transport := &http.Transport{DisableKeepAlives: number%2 == 1}
	client := &http.Client{Transport: transport, Timeout: time.Minute}
	for turn := 0; going(); turn++ {
		path := fmt.Sprintf("/client/%d/turn/%d", number, turn)
		answer, err := client.Get("http://" + address + path)
		if err != nil {
			wrong("%s: %v", path, err)
			return
		}
		got, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil || !bytes.Equal(got, content(path)) {
			wrong("%s: %d other bytes: %v", path, len(got), err)
		}
		answer, err = client.Post("http://"+address+"/hash", "text/plain", bytes.NewReader(got))
		if err != nil {
			wrong("hash of %s: %v", path, err)
			return
		}
		text, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil || string(text) != hash(got) {
			wrong("hash of %s: %q: %v", path, text, err)
		}
		time.Sleep(tick)
	}
}

// A ticker and timers: as many ends as beginnings, and none before its time.
func wait() {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	var begun, ended atomic.Int64
	var waiting sync.WaitGroup
	for going() {
		from := <-ticker.C
		begun.Add(1)
		waiting.Add(1)
		time.AfterFunc(20*tick, func() {
			if time.Since(from) < 20*tick {
				wrong("a timer ended after %v", time.Since(from))
			}
			ended.Add(1)
			waiting.Done()
		})
	}
	waiting.Wait()
	if begun.Load() != ended.Load() {
		wrong("%d timers began, %d ended", begun.Load(), ended.Load())
	}
}

// Numbers go through a chain of goroutines, each adding one.
func chain() {
	const length = 100
	first := make(chan int)
	last := first
	for range [length]struct{}{} {
		from, to := last, make(chan int)
		go func() {
			for number := range from {
				to <- number + 1
			}
			close(to)
		}()
		last = to
	}
	for turn := 0; going(); turn++ {
		first <- turn
		if found := <-last; found != turn+length {
			wrong("turn %d: found %d", turn, found)
		}
		// Memory that the collector takes back.
		runtime.KeepAlive(make([]byte, 1<<16))
	}
	close(first)
}

// Files and processes.
func spawn(folder string) {
	file := filepath.Join(folder, "file")
	for turn := 0; going(); turn++ {
		text := fmt.Sprintf("turn %d", turn)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			wrong("writing: %v", err)
		}
		limit, cancel := context.WithTimeout(context.Background(), time.Minute)
		found, err := exec.CommandContext(limit, "cat", file).Output()
		cancel()
		if err != nil || string(found) != text {
			wrong("expected %q, found %q: %v", text, found, err)
		}
	}
}

func main() {
	end = os.Args[1]
	folder, err := os.MkdirTemp("", "ckptd-go-")
	if err != nil {
		wrong("no folder: %v", err)
		os.Exit(1)
	}
	handler := http.NewServeMux()
	handler.HandleFunc("/", func(to http.ResponseWriter, asked *http.Request) {
		to.Write(content(asked.URL.Path))
	})
	handler.HandleFunc("/hash", func(to http.ResponseWriter, asked *http.Request) {
		body, err := io.ReadAll(asked.Body)
		if err != nil {
			wrong("reading a body: %v", err)
		}
		io.WriteString(to, hash(body))
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		wrong("no port: %v", err)
		os.Exit(1)
	}
	server := &http.Server{Handler: handler}
	go server.Serve(listener)
	var all sync.WaitGroup
	work := func(body func()) {
		all.Add(1)
		go func() { defer all.Done(); body() }()
	}
	for number := 0; number < clients; number++ {
		number := number
		work(func() { ask(listener.Addr().String(), number) })
	}
	work(wait)
	work(chain)
	work(func() { spawn(folder) })
	fmt.Println("started")
	all.Wait()
	if err := server.Shutdown(context.Background()); err != nil {
		wrong("the server's end: %v", err)
	}
	os.RemoveAll(folder)
	if wrongs.Load() > 0 {
		fmt.Println("go: wrong")
		os.Exit(1)
	}
	fmt.Println("go: right")
}
