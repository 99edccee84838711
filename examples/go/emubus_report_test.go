// The report of a test that fails says what emubus knows of it. Copy this file into the package of your tests, and begin
// a test with reportOnFailure(t). EMUBUS_URL is the address of the control API, http://localhost:5300 without it.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"testing"
	"time"
)

func askEmubus(path string) ([]byte, error) {
	url := os.Getenv("EMUBUS_URL")
	if url == "" {
		url = "http://localhost:5300"
	}
	client := http.Client{Timeout: 5 * time.Second}
	answer, err := client.Get(url + "/emubus/v1" + path)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s", answer.Status, body)
	}
	return body, err
}

func reportOnFailure(t testing.TB) {
	t.Helper()
	// By the broker's clock, which tests may have moved.
	var clock struct {
		Now int64 `json:"now_ms"`
	}
	if body, err := askEmubus("/clock"); err == nil {
		_ = json.Unmarshal(body, &clock)
	}
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		report, err := askEmubus(fmt.Sprintf("/report/text?since=%d", clock.Now))
		if err != nil {
			t.Logf("emubus can't be asked what happened: %v", err)
		} else if len(report) > 0 {
			t.Logf("emubus\n%s", report)
		}
	})
}
