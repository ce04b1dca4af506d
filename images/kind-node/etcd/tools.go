//go:build tools

// Package tools pins etcd. It has a module of its own because its go.mod and Kubernetes' disagree.
package tools

import _ "go.etcd.io/etcd/server/v3"
