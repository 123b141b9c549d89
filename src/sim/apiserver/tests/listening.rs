//! The listener on a loopback address, with real time.

use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};

use super::*;

#[tokio::test]
async fn a_client_with_the_kubeconfig_reaches_the_server() {
    let api = server();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let on = api.serve(listener, &[Identity::new("admin")]).unwrap();
    let config = Kubeconfig::from_yaml(&on.kubeconfig("sim")).unwrap();
    let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap();
    let nodes: Api<Node> = Api::all(kube::Client::try_from(config.clone()).unwrap());
    nodes.create(&PostParams::default(), &node("n1")).await.unwrap();
    assert_eq!(nodes.list(&ListParams::default()).await.unwrap().items.len(), 1);
    let mut stranger = config;
    stranger.cluster_url = on.url().parse().unwrap();
    stranger.auth_info.token = Some("other".to_owned().into());
    let nodes: Api<Node> = Api::all(kube::Client::try_from(stranger).unwrap());
    assert_eq!(refused(nodes.get("n1").await.unwrap_err()).0, 401);
}

#[tokio::test]
async fn an_administrator_may_act_as_somebody_and_others_only_as_the_roles_say() {
    let api = server();
    api.enforce_rbac(true);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let on = api.serve(listener, &[Identity::new("admin"), Identity::new("viewer").user("viewer")]).unwrap();
    let ask = async |context: &str, as_whom: Option<&str>| {
        let config = Kubeconfig::from_yaml(&on.kubeconfig("sim")).unwrap();
        let options = KubeConfigOptions { context: Some(context.to_owned()), ..KubeConfigOptions::default() };
        let mut config = kube::Config::from_custom_kubeconfig(config, &options).await.unwrap();
        config.auth_info.impersonate = as_whom.map(str::to_owned);
        let nodes: Api<Node> = Api::all(kube::Client::try_from(config).unwrap());
        nodes.list(&ListParams::default()).await.map(drop).map_err(|error| refused(error).2)
    };
    assert_eq!(ask("admin", None).await, Ok(()));
    assert!(ask("admin", Some("ann")).await.unwrap_err().contains("User \"ann\" cannot list resource \"nodes\""));
    let not_allowed = ask("viewer", Some("admin")).await.unwrap_err();
    assert!(not_allowed.contains("User \"viewer\" cannot impersonate resource \"users\""), "{not_allowed}");
}
