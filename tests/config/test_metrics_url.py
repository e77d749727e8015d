import pytest

from llmhost.model.endpoint import parse_metrics_url


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("localhost:8000", "must begin with"),
        ("ftp://x/metrics", "must begin with"),
        ("http:/x", "must begin with"),
        ("file:///etc/passwd", "must begin with"),
        ("http://", "no host in it"),
        ("http://:8000", "no host in it"),
        ("http://1.2.3", "no host in it"),
        ("http://-x", "no host in it"),
        ("http://[::g]:1", "port from 1 to 65535"),  # urllib itself refuses it
        ("http://[fe80::1%25eth0]", "no host in it"),
        ("http://x:0", "the port is from 1 to 65535"),
        ("http://x:65536", "port from 1 to 65535"),
        ("http://x:a", "port from 1 to 65535"),
        ("http://user:secret@x", "no credentials"),
        ("http://secret@x", "no credentials"),
        ("http://x/metrics#a", '"#" part'),
        ("http://x/a b", "without blanks"),
        ("http://x/\u00e9", "ASCII"),
    ],
)
def test_a_url_is_http_has_a_host_and_no_credentials(url: str, why: str) -> None:
    with pytest.raises(ValueError, match=r"URL|must|host|port") as caught:
        parse_metrics_url(url)
    assert why in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "endpoint", "target"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000", "/metrics"),
        ("http://LLM.example/", "http://llm.example:80", "/metrics"),
        ("HTTPS://llm.example/vllm/metrics", "https://llm.example:443", "/vllm/metrics"),
        ("http://[::1]:8080?model=a%2Fb", "http://[::1]:8080", "/metrics?model=a%2Fb"),
    ],
)
def test_a_url_is_taken_apart_into_endpoint_and_target(url: str, endpoint: str, target: str) -> None:
    parsed = parse_metrics_url(url)
    assert (parsed.endpoint, parsed.target) == (endpoint, target)
