//! Pods as an API server sends them: 9.4 kB each, nearly half of it managedFields, as measured on a real cluster.

use std::fmt::Write as _;

/// A page of a list of pods, numbers `from..to`, on `nodes` nodes. One pod in ten claims a GPU, one in ten has a volume claim.
pub fn page(from: usize, to: usize, nodes: usize, list_version: u64) -> String {
    let mut text = String::with_capacity((to - from) * 10_000);
    let _ = write!(
        text,
        r#"{{"kind":"PodList","apiVersion":"v1","metadata":{{"resourceVersion":"{list_version}","continue":"next"}},"items":["#
    );
    for number in from..to {
        if number > from {
            text.push(',');
        }
        pod(&mut text, number, nodes);
    }
    text.push_str("]}");
    text
}

/// One pod; every third belongs to a StatefulSet (own labels), the others to ReplicaSets of ten (shared labels).
pub fn pod(text: &mut String, number: usize, nodes: usize) {
    let app = number / 10;
    let namespace = app % 53;
    let node = number % nodes;
    let stateful = app.is_multiple_of(3);
    let gpu = if app % 10 == 7 { r#","vendor.com/gpu":"1""# } else { "" };
    let (kind, name) = if stateful {
        ("StatefulSet", format!("app-{app:05}-{}", number % 10))
    } else {
        ("ReplicaSet", format!("app-{app:05}-7d9c6b5f4-{number:05x}"))
    };
    let own_label = if stateful {
        format!(r#""apps.kubernetes.io/pod-index":"{0}","statefulset.kubernetes.io/pod-name":"{name}""#, number % 10)
    } else {
        r#""pod-template-hash":"7d9c6b5f4""#.to_owned()
    };
    let volume = if app % 10 == 3 {
        format!(r#"{{"name":"data","persistentVolumeClaim":{{"claimName":"data-{name}"}}}},"#)
    } else {
        String::new()
    };
    let uid = format!("{number:08x}-1c2d-4e5f-8a9b-{number:012x}");
    let owner = format!("{app:08x}-aaaa-4bbb-8ccc-{app:012x}");
    let version = 100_000 + number;
    let _ = write!(
        text,
        r#"{{"metadata":{{"name":"{name}","generateName":"app-{app:05}-7d9c6b5f4-","namespace":"team-{namespace}","uid":"{uid}","resourceVersion":"{version}","generation":1,"creationTimestamp":"2026-03-04T05:06:07Z","labels":{{"app.kubernetes.io/instance":"app-{app:05}","app.kubernetes.io/managed-by":"Helm","app.kubernetes.io/name":"app-{app:05}","app.kubernetes.io/version":"1.{namespace}.3",{own_label}}},"annotations":{{"checksum/config":"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08","prometheus.io/port":"8080","prometheus.io/scrape":"true"}},"ownerReferences":[{{"apiVersion":"apps/v1","kind":"{kind}","name":"app-{app:05}","uid":"{owner}","controller":true,"blockOwnerDeletion":true}}],"managedFields":[{MANAGED_CONTROLLER},{MANAGED_KUBELET}]}},"spec":{{"volumes":[{volume}{VOLUMES}],"containers":[{{"name":"main","image":"registry.example/team-{namespace}/app-{app:05}:1.{namespace}.3","ports":[{{"name":"http","containerPort":8080,"protocol":"TCP"}}],"env":[{ENV}],"resources":{{"limits":{{"cpu":"2","memory":"2Gi"{gpu}}},"requests":{{"cpu":"500m","memory":"1Gi"{gpu}}}}},{CONTAINER}}},{SIDECAR}],"restartPolicy":"Always","terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst","serviceAccountName":"app-{app:05}","serviceAccount":"app-{app:05}","nodeName":"node-{node:05}.cluster.example","securityContext":{{"runAsUser":1000,"runAsNonRoot":true,"fsGroup":1000,"seccompProfile":{{"type":"RuntimeDefault"}}}},"affinity":{{"podAntiAffinity":{{"preferredDuringSchedulingIgnoredDuringExecution":[{{"weight":100,"podAffinityTerm":{{"labelSelector":{{"matchLabels":{{"app.kubernetes.io/name":"app-{app:05}"}}}},"topologyKey":"kubernetes.io/hostname"}}}}]}}}},"schedulerName":"default-scheduler","tolerations":[{{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}},{{"key":"node.kubernetes.io/unreachable","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}}],"priority":0,"enableServiceLinks":true,"preemptionPolicy":"PreemptLowerPriority"}},"status":{{"phase":"Running","conditions":[{CONDITIONS}],"hostIP":"10.0.{0}.{1}","hostIPs":[{{"ip":"10.0.{0}.{1}"}}],"podIP":"10.1.{0}.{1}","podIPs":[{{"ip":"10.1.{0}.{1}"}}],"startTime":"2026-03-04T05:06:08Z","containerStatuses":[{STATUSES}],"qosClass":"Burstable"}}}}"#,
        node / 250,
        node % 250
    );
}

const VOLUMES: &str = r#"{"name":"config","configMap":{"name":"app-config","defaultMode":420}},{"name":"tls","secret":{"secretName":"app-tls","defaultMode":420}},{"name":"kube-api-access-x7k2p","projected":{"sources":[{"serviceAccountToken":{"expirationSeconds":3607,"path":"token"}},{"configMap":{"name":"kube-root-ca.crt","items":[{"key":"ca.crt","path":"ca.crt"}]}},{"downwardAPI":{"items":[{"path":"namespace","fieldRef":{"apiVersion":"v1","fieldPath":"metadata.namespace"}}]}}],"defaultMode":420}}"#;
const ENV: &str = r#"{"name":"POD_NAME","valueFrom":{"fieldRef":{"apiVersion":"v1","fieldPath":"metadata.name"}}},{"name":"POD_NAMESPACE","valueFrom":{"fieldRef":{"apiVersion":"v1","fieldPath":"metadata.namespace"}}},{"name":"DATABASE_URL","valueFrom":{"secretKeyRef":{"name":"db","key":"url"}}},{"name":"LOG_LEVEL","value":"info"},{"name":"OTEL_EXPORTER_OTLP_ENDPOINT","value":"http://otel-collector.observability.svc:4317"}"#;
const CONTAINER: &str = r#""volumeMounts":[{"name":"config","readOnly":true,"mountPath":"/etc/app"},{"name":"tls","readOnly":true,"mountPath":"/etc/tls"},{"name":"kube-api-access-x7k2p","readOnly":true,"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}],"livenessProbe":{"httpGet":{"path":"/healthz","port":"http","scheme":"HTTP"},"initialDelaySeconds":10,"timeoutSeconds":1,"periodSeconds":10,"successThreshold":1,"failureThreshold":3},"readinessProbe":{"httpGet":{"path":"/readyz","port":"http","scheme":"HTTP"},"timeoutSeconds":1,"periodSeconds":5,"successThreshold":1,"failureThreshold":3},"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"IfNotPresent","securityContext":{"capabilities":{"drop":["ALL"]},"readOnlyRootFilesystem":true,"allowPrivilegeEscalation":false}"#;
const SIDECAR: &str = r#"{"name":"proxy","image":"registry.example/mesh/proxy:1.24.1","args":["proxy","sidecar","--domain","$(POD_NAMESPACE).svc.cluster.local","--log_output_level=default:info"],"ports":[{"name":"admin","containerPort":15090,"protocol":"TCP"}],"env":[{"name":"POD_NAMESPACE","valueFrom":{"fieldRef":{"apiVersion":"v1","fieldPath":"metadata.namespace"}}}],"resources":{"limits":{"cpu":"2","memory":"1Gi"},"requests":{"cpu":"100m","memory":"128Mi"}},"volumeMounts":[{"name":"kube-api-access-x7k2p","readOnly":true,"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}],"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"IfNotPresent"}"#;
const CONDITIONS: &str = r#"{"type":"PodReadyToStartContainers","status":"True","lastProbeTime":null,"lastTransitionTime":"2026-03-04T05:06:09Z"},{"type":"Initialized","status":"True","lastProbeTime":null,"lastTransitionTime":"2026-03-04T05:06:12Z"},{"type":"Ready","status":"True","lastProbeTime":null,"lastTransitionTime":"2026-03-04T05:06:20Z"},{"type":"ContainersReady","status":"True","lastProbeTime":null,"lastTransitionTime":"2026-03-04T05:06:20Z"},{"type":"PodScheduled","status":"True","lastProbeTime":null,"lastTransitionTime":"2026-03-04T05:06:08Z"}"#;
const STATUSES: &str = r#"{"name":"main","state":{"running":{"startedAt":"2026-03-04T05:06:13Z"}},"lastState":{},"ready":true,"restartCount":0,"image":"registry.example/app:1","imageID":"registry.example/app@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08","containerID":"containerd://7d793037a0760186574b0282f2f435e77d793037a0760186574b0282f2f435e7","started":true,"resources":{"limits":{"cpu":"2","memory":"2Gi"},"requests":{"cpu":"500m","memory":"1Gi"}}},{"name":"proxy","state":{"running":{"startedAt":"2026-03-04T05:06:13Z"}},"lastState":{},"ready":true,"restartCount":0,"image":"registry.example/mesh/proxy:1.24.1","imageID":"registry.example/mesh/proxy@sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae","containerID":"containerd://9e107d9d372bb6826bd81d3542a419d69e107d9d372bb6826bd81d3542a419d6","started":true}"#;
const MANAGED_CONTROLLER: &str = r#"{"manager":"kube-controller-manager","operation":"Update","apiVersion":"v1","time":"2026-03-04T05:06:07Z","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:annotations":{".":{},"f:checksum/config":{},"f:prometheus.io/port":{},"f:prometheus.io/scrape":{}},"f:generateName":{},"f:labels":{".":{},"f:app.kubernetes.io/instance":{},"f:app.kubernetes.io/managed-by":{},"f:app.kubernetes.io/name":{},"f:app.kubernetes.io/version":{},"f:pod-template-hash":{}},"f:ownerReferences":{".":{},"k:{\"uid\":\"0a1b2c3d-aaaa-4bbb-8ccc-0123456789ab\"}":{}}},"f:spec":{"f:affinity":{".":{},"f:podAntiAffinity":{".":{},"f:preferredDuringSchedulingIgnoredDuringExecution":{}}},"f:containers":{"k:{\"name\":\"main\"}":{".":{},"f:env":{".":{},"k:{\"name\":\"DATABASE_URL\"}":{".":{},"f:name":{},"f:valueFrom":{".":{},"f:secretKeyRef":{}}},"k:{\"name\":\"LOG_LEVEL\"}":{".":{},"f:name":{},"f:value":{}},"k:{\"name\":\"OTEL_EXPORTER_OTLP_ENDPOINT\"}":{".":{},"f:name":{},"f:value":{}},"k:{\"name\":\"POD_NAME\"}":{".":{},"f:name":{},"f:valueFrom":{".":{},"f:fieldRef":{}}},"k:{\"name\":\"POD_NAMESPACE\"}":{".":{},"f:name":{},"f:valueFrom":{".":{},"f:fieldRef":{}}}},"f:image":{},"f:imagePullPolicy":{},"f:livenessProbe":{".":{},"f:failureThreshold":{},"f:httpGet":{".":{},"f:path":{},"f:port":{},"f:scheme":{}},"f:initialDelaySeconds":{},"f:periodSeconds":{},"f:successThreshold":{},"f:timeoutSeconds":{}},"f:name":{},"f:ports":{".":{},"k:{\"containerPort\":8080,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{},"f:name":{},"f:protocol":{}}},"f:readinessProbe":{".":{},"f:failureThreshold":{},"f:httpGet":{".":{},"f:path":{},"f:port":{},"f:scheme":{}},"f:periodSeconds":{},"f:successThreshold":{},"f:timeoutSeconds":{}},"f:resources":{".":{},"f:limits":{".":{},"f:cpu":{},"f:memory":{}},"f:requests":{".":{},"f:cpu":{},"f:memory":{}}},"f:securityContext":{".":{},"f:allowPrivilegeEscalation":{},"f:capabilities":{".":{},"f:drop":{}},"f:readOnlyRootFilesystem":{}},"f:terminationMessagePath":{},"f:terminationMessagePolicy":{},"f:volumeMounts":{".":{},"k:{\"mountPath\":\"/etc/app\"}":{".":{},"f:mountPath":{},"f:name":{},"f:readOnly":{}},"k:{\"mountPath\":\"/etc/tls\"}":{".":{},"f:mountPath":{},"f:name":{},"f:readOnly":{}}}},"k:{\"name\":\"proxy\"}":{".":{},"f:args":{},"f:env":{".":{},"k:{\"name\":\"POD_NAMESPACE\"}":{".":{},"f:name":{},"f:valueFrom":{".":{},"f:fieldRef":{}}}},"f:image":{},"f:imagePullPolicy":{},"f:name":{},"f:ports":{".":{},"k:{\"containerPort\":15090,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{},"f:name":{},"f:protocol":{}}},"f:resources":{".":{},"f:limits":{".":{},"f:cpu":{},"f:memory":{}},"f:requests":{".":{},"f:cpu":{},"f:memory":{}}},"f:terminationMessagePath":{},"f:terminationMessagePolicy":{}}},"f:dnsPolicy":{},"f:enableServiceLinks":{},"f:restartPolicy":{},"f:schedulerName":{},"f:securityContext":{".":{},"f:fsGroup":{},"f:runAsNonRoot":{},"f:runAsUser":{},"f:seccompProfile":{".":{},"f:type":{}}},"f:serviceAccount":{},"f:serviceAccountName":{},"f:terminationGracePeriodSeconds":{},"f:volumes":{".":{},"k:{\"name\":\"config\"}":{".":{},"f:configMap":{".":{},"f:defaultMode":{},"f:name":{}},"f:name":{}},"k:{\"name\":\"tls\"}":{".":{},"f:name":{},"f:secret":{".":{},"f:defaultMode":{},"f:secretName":{}}}}}}}"#;
const MANAGED_KUBELET: &str = r#"{"manager":"kubelet","operation":"Update","apiVersion":"v1","time":"2026-03-04T05:06:20Z","fieldsType":"FieldsV1","fieldsV1":{"f:status":{"f:conditions":{"k:{\"type\":\"ContainersReady\"}":{".":{},"f:lastProbeTime":{},"f:lastTransitionTime":{},"f:status":{},"f:type":{}},"k:{\"type\":\"Initialized\"}":{".":{},"f:lastProbeTime":{},"f:lastTransitionTime":{},"f:status":{},"f:type":{}},"k:{\"type\":\"PodReadyToStartContainers\"}":{".":{},"f:lastProbeTime":{},"f:lastTransitionTime":{},"f:status":{},"f:type":{}},"k:{\"type\":\"Ready\"}":{".":{},"f:lastProbeTime":{},"f:lastTransitionTime":{},"f:status":{},"f:type":{}}},"f:containerStatuses":{},"f:hostIP":{},"f:hostIPs":{},"f:initContainerStatuses":{},"f:phase":{},"f:podIP":{},"f:podIPs":{".":{},"k:{\"ip\":\"10.1.0.1\"}":{".":{},"f:ip":{}}},"f:startTime":{}}},"subresource":"status"}"#;
