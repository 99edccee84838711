package main

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/go-amqp"
)

// decimal is a 64-bit number written as a JSON string.
type decimal int64

func (number *decimal) UnmarshalJSON(text []byte) error {
	value, err := strconv.ParseInt(strings.Trim(string(text), `"`), 10, 64)
	*number = decimal(value)
	return err
}

func sdkNumbers(decimals []decimal) []int64 {
	numbers := make([]int64, len(decimals))
	for i, number := range decimals {
		numbers[i] = int64(number)
	}
	return numbers
}

// typed is one application property: of the Go types, the one that the SDK sends as that AMQP type.
type typed struct {
	value any
}

var propertyTypes = []string{"int", "long", "double", "timestamp", "uuid", "binary"}

func (property *typed) UnmarshalJSON(text []byte) error {
	if !bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) {
		if err := json.Unmarshal(text, &property.value); err != nil {
			return err
		}
		if number, isNumber := property.value.(float64); isNumber {
			return fmt.Errorf("property %v has no type", number)
		}
		return nil
	}
	var given struct {
		Type  string          `json:"type"`
		Value json.RawMessage `json:"value"`
	}
	if err := json.Unmarshal(text, &given); err != nil {
		return err
	}
	var err error
	property.value, err = readTyped(given.Type, given.Value)
	return err
}

func readTyped(name string, value json.RawMessage) (any, error) {
	switch name {
	case "int":
		return read[int32](value)
	case "long":
		number, err := read[decimal](value)
		return int64(number), err
	case "double":
		return read[float64](value)
	case "timestamp":
		instant, err := read[int64](value)
		return time.UnixMilli(instant).UTC(), err
	case "binary":
		return read[[]byte](value)
	case "uuid":
		text, err := read[string](value)
		if err != nil {
			return nil, err
		}
		decoded, err := hex.DecodeString(strings.ReplaceAll(text, "-", ""))
		if err != nil || len(decoded) != 16 {
			return nil, fmt.Errorf("not a uuid: %q", text)
		}
		return amqp.UUID(decoded), nil
	}
	return nil, fmt.Errorf("this SDK can't send a property of type %q", name)
}

func read[T any](text json.RawMessage) (T, error) {
	var value T
	err := json.Unmarshal(text, &value)
	return value, err
}

// sdkProperties returns the values alone, nil when there are none.
func sdkProperties(properties map[string]typed) map[string]any {
	if len(properties) == 0 {
		return nil
	}
	values := make(map[string]any, len(properties))
	for name, property := range properties {
		values[name] = property.value
	}
	return values
}

func shownProperties(properties map[string]any) fields {
	shown := fields{}
	for name, value := range properties {
		shown[name] = shownValue(value)
	}
	return shown
}

func shownValue(value any) any {
	switch value := value.(type) {
	case nil, string, bool:
		return value
	case int32:
		return fields{"type": "int", "value": value}
	case int64:
		return fields{"type": "long", "value": strconv.FormatInt(value, 10)}
	case float64:
		return fields{"type": "double", "value": value}
	case time.Time:
		return fields{"type": "timestamp", "value": value.UnixMilli()}
	case amqp.UUID:
		return fields{"type": "uuid", "value": strings.ToLower(value.String())}
	case []byte:
		return fields{"type": "binary", "value": base64.StdEncoding.EncodeToString(value)}
	}
	return fields{"type": "other", "value": fmt.Sprint(value)}
}
