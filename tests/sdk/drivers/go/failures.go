package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"
)

// failure is the error object of an answer.
type failure struct {
	Kind    string  `json:"kind"`
	Type    string  `json:"type"`
	Code    *string `json:"code"`
	Message string  `json:"message"`
}

var kindByCondition = map[string]string{
	"amqp:not-found":                         "not-found",
	"amqp:link:message-size-exceeded":        "message-size",
	"com.microsoft:message-lock-lost":        "lock-lost",
	"com.microsoft:session-lock-lost":        "session-lock-lost",
	"com.microsoft:session-cannot-be-locked": "session-cannot-be-locked",
	"com.microsoft:timeout":                  "timeout",
	"amqp:unauthorized-access":               "unauthorized",
	"amqp:resource-limit-exceeded":           "quota",
	"com.microsoft:server-busy":              "busy",
	"com.microsoft:entity-disabled":          "disabled",
	"com.microsoft:message-not-found":        "message-not-found",
	"amqp:not-allowed":                       "not-allowed",
	"com.microsoft:entity-already-exists":    "exists",
	"com.microsoft:argument-error":           "argument",
}

var kindByCode = map[azservicebus.Code]string{
	azservicebus.CodeLockLost:           "lock-lost",
	azservicebus.CodeTimeout:            "timeout",
	azservicebus.CodeUnauthorizedAccess: "unauthorized",
}

// kindByStatus is for administration, where the SDK shows the HTTP status.
var kindByStatus = map[int]string{
	http.StatusBadRequest:         "argument",
	http.StatusUnauthorized:       "unauthorized",
	http.StatusForbidden:          "quota",
	http.StatusNotFound:           "not-found",
	http.StatusConflict:           "exists",
	http.StatusServiceUnavailable: "busy",
}

// The SDK's own error hides its cause but for the text.
var conditionText = regexp.MustCompile(`Condition: ([^\s,]+),`)

func newFailure(err error) *failure {
	inSession := false
	if of, known := err.(sessionError); known {
		err, inSession = of.cause, true
	}
	reported := &failure{Kind: "other", Type: fmt.Sprintf("%T", err), Message: err.Error()}
	if tellStatus(reported, err) {
		return reported
	}
	condition := conditionOf(err)
	if condition != "" {
		reported.Code = &condition
	}
	var own *azservicebus.Error
	if errors.As(err, &own) {
		code := string(own.Code)
		reported.Code = &code
	}
	if kind, known := kindByCondition[condition]; known {
		reported.Kind = kind
	} else if own != nil {
		reported.Kind = kindOfCode(own)
	} else if errors.Is(err, azservicebus.ErrMessageTooLarge) {
		reported.Kind = "message-size"
	} else if errors.Is(err, context.DeadlineExceeded) {
		reported.Kind = "timeout"
	}
	if inSession && condition == "" && reported.Kind == "lock-lost" {
		reported.Kind = "session-lock-lost"
	}
	return reported
}

// tellStatus fills in what an error of administration says, and tells whether err is one.
func tellStatus(reported *failure, err error) bool {
	var response *azcore.ResponseError
	if errors.As(err, &response) {
		if kind, known := kindByStatus[response.StatusCode]; known {
			reported.Kind = kind
		}
		code := strconv.Itoa(response.StatusCode)
		reported.Code = &code
		return true
	}
	if errors.As(err, &absentError{}) {
		reported.Kind = "not-found"
		return true
	}
	return false
}

// conditionOf returns the AMQP condition of err or of its cause, "" when there is none.
func conditionOf(err error) string {
	var cause *amqp.Error
	if errors.As(err, &cause) {
		return string(cause.Condition)
	}
	if found := conditionText.FindStringSubmatch(err.Error()); found != nil {
		return found[1]
	}
	return ""
}

func kindOfCode(own *azservicebus.Error) string {
	// This code is the SDK's for status 404 of a management request, whatever it was that wasn't found:
	// of its condition the SDK keeps nothing.
	if own.Code == azservicebus.CodeNotFound {
		if strings.Contains(own.Error(), "messaging entity") {
			return "not-found"
		}
		return "message-not-found"
	}
	if kind, known := kindByCode[own.Code]; known {
		return kind
	}
	return "other"
}
