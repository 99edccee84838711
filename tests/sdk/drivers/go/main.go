// Command driver is the driver around Azure's Go SDK: one request per line in, one answer per line out,
// as PROTOCOL.md in tests/sdk/ says. This file knows the lines and the names of the operations on messages
// (admin.go has those of administration), nothing of the SDK; the clients own every connection and are
// closed at the end.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// request holds the arguments of all operations; absent and null are the same.
type request struct {
	Entity             string           `json:"entity"`
	Subscription       *string          `json:"subscription"`
	SubQueue           *string          `json:"sub_queue"`
	Mode               string           `json:"mode"`
	How                string           `json:"how"`
	Messages           []messageIn      `json:"messages"`
	BodyBytes          int              `json:"body_bytes"`
	MaxBytes           *uint64          `json:"max_bytes"`
	Receiver           string           `json:"receiver"`
	Max                int              `json:"max"`
	WaitMs             int64            `json:"wait_ms"`
	Message            string           `json:"message"`
	Action             string           `json:"action"`
	Reason             *string          `json:"reason"`
	Description        *string          `json:"description"`
	Properties         map[string]typed `json:"properties"`
	FromSequenceNumber *decimal         `json:"from_sequence_number"`
	SequenceNumbers    []decimal        `json:"sequence_numbers"`
	SessionID          *string          `json:"session_id"`
	StateBase64        []byte           `json:"state_base64"`
	UpdatedAfterMs     *int64           `json:"updated_after_ms"`
	AtMs               int64            `json:"at_ms"`
	Transaction        *string          `json:"transaction"`
	Credential         *shown           `json:"credential"`
	Namespace          *string          `json:"namespace"`
	Address            *string          `json:"address"`
}

// heading tells requests apart; it is read first, so that a wrong argument is answered by its id.
type heading struct {
	ID json.RawMessage `json:"id"`
	Op string          `json:"op"`
}

type answer struct {
	ID     json.RawMessage `json:"id"`
	Ok     bool            `json:"ok"`
	Result any             `json:"result,omitempty"`
	Error  *failure        `json:"error,omitempty"`
}

// fields is a JSON object of an answer.
type fields map[string]any

var operations = map[string]func(*clients, *request) (fields, error){
	"hello":             (*clients).hello,
	"send":              (*clients).send,
	"fill_batch":        (*clients).fillBatch,
	"schedule":          (*clients).schedule,
	"cancel_scheduled":  (*clients).cancelScheduled,
	"receiver_open":     (*clients).openReceiver,
	"receiver_close":    (*clients).closeReceiver,
	"receive":           onReceiver((*receiver).receive),
	"receive_deferred":  onReceiver((*receiver).receiveDeferred),
	"peek":              onReceiver((*receiver).peek),
	"settle":            onReceiver((*receiver).settle),
	"renew_lock":        onReceiver((*receiver).renewLock),
	"session_accept":    (*clients).acceptSession,
	"session_list":      (*clients).listSessions,
	"session_renew":     onSession(renewSession),
	"session_get_state": onSession(getSessionState),
	"session_set_state": onSession(setSessionState),
	"reset":             (*clients).reset,
	"close":             (*clients).reset,
}

func main() {
	way, err := readArguments(os.Args[1:])
	if err == nil {
		err = serve(newClients(way), os.Stdin, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

// serve answers requests until the end of input or a close; an error means a broken protocol.
func serve(held *clients, input io.Reader, output io.Writer) error {
	lines := bufio.NewReader(input)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if !json.Valid(line) {
			return fmt.Errorf("not a request: %.200s", line)
		}
		asked, answered := handle(held, line)
		text, err := json.Marshal(answered)
		if err != nil {
			return err
		}
		if _, err := output.Write(append(text, '\n')); err != nil {
			return err
		}
		if asked == "close" {
			return nil
		}
	}
}

func handle(held *clients, line []byte) (op string, answered answer) {
	var head heading
	// The SDK panics on some answers of a server; that is worth an answer, not the end of the driver.
	defer func() {
		if cause := recover(); cause != nil {
			answered = answer{ID: head.ID, Error: newFailure(fmt.Errorf("panic: %v", cause))}
		}
	}()
	if err := json.Unmarshal(line, &head); err != nil {
		return "", answer{Error: newFailure(err)}
	}
	result, err := perform(held, head.Op, line)
	if err != nil {
		return head.Op, answer{ID: head.ID, Error: newFailure(err)}
	}
	return head.Op, answer{ID: head.ID, Ok: true, Result: result}
}

func perform(held *clients, op string, line []byte) (fields, error) {
	if operation, known := adminOperations[op]; known {
		var asked adminRequest
		if err := json.Unmarshal(line, &asked); err != nil {
			return nil, err
		}
		return operation(held, &asked)
	}
	operation, known := operations[op]
	if !known {
		return nil, fmt.Errorf("unknown op %q", op)
	}
	var asked request
	if err := json.Unmarshal(line, &asked); err != nil {
		return nil, err
	}
	if asked.Transaction != nil {
		return nil, errors.New("this SDK has no transactions")
	}
	return operation(held, &asked)
}

func onReceiver(
	operation func(*receiver, *request) (fields, error),
) func(*clients, *request) (fields, error) {
	return func(held *clients, asked *request) (fields, error) {
		found, known := held.receivers[asked.Receiver]
		if !known {
			return nil, fmt.Errorf("unknown receiver %q", asked.Receiver)
		}
		result, err := operation(found, asked)
		if err != nil && found.session != nil {
			err = sessionError{err}
		}
		return result, err
	}
}
