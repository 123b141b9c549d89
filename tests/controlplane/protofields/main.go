// Command protofields prints what the simulated API server must know of the types of the kinds that it serves: protobuf field numbers,
// JSON names and types, and what is left out of JSON, read from the Go types' own tags. Its output is
// src/sim/apiserver/types.fields; run it again for another Kubernetes version:
//
//	cd tests/controlplane && go run ./protofields > ../../src/sim/apiserver/types.fields
package main

import (
	"fmt"
	"reflect"
	"slices"
	"sort"
	"strconv"
	"strings"

	admission "k8s.io/api/admissionregistration/v1"
	apps "k8s.io/api/apps/v1"
	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	autoscaling "k8s.io/api/autoscaling/v1"
	batch "k8s.io/api/batch/v1"
	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	events "k8s.io/api/events/v1"
	policy "k8s.io/api/policy/v1"
	rbac "k8s.io/api/rbac/v1"
	resource "k8s.io/api/resource/v1"
	scheduling "k8s.io/api/scheduling/v1"
	storage "k8s.io/api/storage/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var roots = []struct {
	version string
	object  any
}{
	{"", meta.DeleteOptions{}},
	{"v1", core.Namespace{}}, {"v1", core.Node{}}, {"v1", core.Pod{}}, {"v1", core.Event{}},
	{"v1", core.PersistentVolumeClaim{}}, {"v1", core.PersistentVolume{}}, {"v1", core.ConfigMap{}}, {"v1", core.Secret{}},
	{"v1", core.ServiceAccount{}}, {"v1", core.Service{}}, {"v1", core.Binding{}},
	{"events.k8s.io/v1", events.Event{}},
	{"coordination.k8s.io/v1", coordination.Lease{}},
	{"apps/v1", apps.DaemonSet{}}, {"apps/v1", apps.ControllerRevision{}}, {"apps/v1", apps.Deployment{}},
	{"apps/v1", apps.ReplicaSet{}}, {"apps/v1", apps.StatefulSet{}},
	{"autoscaling/v1", autoscaling.Scale{}},
	{"batch/v1", batch.Job{}},
	{"policy/v1", policy.PodDisruptionBudget{}}, {"policy/v1", policy.Eviction{}},
	{"storage.k8s.io/v1", storage.StorageClass{}}, {"storage.k8s.io/v1", storage.CSIDriver{}},
	{"storage.k8s.io/v1", storage.CSINode{}}, {"storage.k8s.io/v1", storage.VolumeAttachment{}},
	{"resource.k8s.io/v1", resource.ResourceClaim{}}, {"resource.k8s.io/v1", resource.ResourceClaimTemplate{}},
	{"resource.k8s.io/v1", resource.ResourceSlice{}}, {"resource.k8s.io/v1", resource.DeviceClass{}},
	{"scheduling.k8s.io/v1", scheduling.PriorityClass{}},
	{"rbac.authorization.k8s.io/v1", rbac.ClusterRole{}}, {"rbac.authorization.k8s.io/v1", rbac.ClusterRoleBinding{}},
	{"rbac.authorization.k8s.io/v1", rbac.Role{}}, {"rbac.authorization.k8s.io/v1", rbac.RoleBinding{}},
	{"admissionregistration.k8s.io/v1", admission.ValidatingAdmissionPolicy{}},
	{"admissionregistration.k8s.io/v1", admission.ValidatingAdmissionPolicyBinding{}},
	{"authorization.k8s.io/v1", authorization.SelfSubjectAccessReview{}},
	{"authorization.k8s.io/v1", authorization.SelfSubjectRulesReview{}},
	{"authorization.k8s.io/v1", authorization.SubjectAccessReview{}},
	{"authorization.k8s.io/v1", authorization.LocalSubjectAccessReview{}},
	{"authentication.k8s.io/v1", authentication.SelfSubjectReview{}},
}

// Messages with a JSON form of their own.
var special = map[string]string{
	"meta.Time": "time", "meta.MicroTime": "time", "meta.Duration": "duration", "meta.FieldsV1": "raw",
	"runtime.RawExtension": "raw", "resource.Quantity": "quantity", "intstr.IntOrString": "intstr",
}

var (
	messages = map[string][]string{}
	pending  []reflect.Type
)

func name(t reflect.Type) string {
	parts := strings.Split(t.PkgPath(), "/")
	pkg := parts[len(parts)-1]
	if len(pkg) > 1 && pkg[0] == 'v' && pkg[1] >= '0' && pkg[1] <= '9' {
		pkg = parts[len(parts)-2]
	}
	if strings.HasPrefix(t.PkgPath(), "k8s.io/api/resource") {
		pkg = "dra"
	}
	return pkg + "." + t.Name()
}

func typeOf(t reflect.Type, wire string) string {
	switch {
	case t.Kind() == reflect.Pointer:
		return typeOf(t.Elem(), wire)
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
		return "bytes"
	case t.Kind() == reflect.Slice:
		if _, own := reflect.PointerTo(t).MethodByName("Marshal"); own {
			return "items"
		}
		return "[]" + typeOf(t.Elem(), wire)
	case t.Kind() == reflect.Map:
		return "{}" + typeOf(t.Elem(), "bytes")
	case t.Kind() == reflect.Struct:
		if word, ok := special[name(t)]; ok {
			return word
		}
		pending = append(pending, t)
		return name(t)
	case t.Kind() == reflect.String:
		return "string"
	case t.Kind() == reflect.Bool:
		return "bool"
	case t.Kind() == reflect.Int32 || t.Kind() == reflect.Int64 || t.Kind() == reflect.Int:
		return "int"
	case t.Kind() == reflect.Float64:
		return "double"
	}
	panic(fmt.Sprint(t, " ", wire))
}

// What encoding/json does with a field that holds nothing: a struct is left out for omitzero alone, a pointer is null or absent.
func flag(kind reflect.Kind, options []string) string {
	empty, zero := slices.Contains(options, "omitempty"), slices.Contains(options, "omitzero")
	switch {
	case kind == reflect.Pointer && (empty || zero):
		return "*"
	case kind == reflect.Pointer:
		return "!"
	case zero || (empty && kind != reflect.Struct):
		return "?"
	}
	return ""
}

func visit(t reflect.Type) {
	if _, known := messages[name(t)]; known {
		return
	}
	messages[name(t)] = []string{}
	for i := range t.NumField() {
		field := t.Field(i)
		tag := strings.Split(field.Tag.Get("protobuf"), ",")
		if len(tag) < 2 {
			continue
		}
		number, err := strconv.Atoi(tag[1])
		if err != nil {
			panic(err)
		}
		parts := strings.Split(field.Tag.Get("json"), ",")
		json := parts[0]
		if json == "" {
			json = "-"
		}
		flags := flag(field.Type.Kind(), parts[1:])
		messages[name(t)] = append(messages[name(t)], fmt.Sprintf("%d %s%s %s", number, json, flags, typeOf(field.Type, tag[0])))
	}
}

func main() {
	fmt.Println("# Field numbers, JSON names and types of Kubernetes 1.37 objects, printed by tests/controlplane/protofields.")
	fmt.Println("# `?` is left out when it is zero or empty, `*` when it was not given, `!` is null when it was not given, `-` is inline.")
	for _, root := range roots {
		t := reflect.TypeOf(root.object)
		fmt.Printf("kind %s %s %s\n", t.Name(), name(t), root.version)
		pending = append(pending, t)
	}
	for len(pending) > 0 {
		next := pending[0]
		pending = pending[1:]
		visit(next)
	}
	var names []string
	for name := range messages {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		fmt.Printf("%s: %s\n", name, strings.Join(messages[name], ", "))
	}
}
