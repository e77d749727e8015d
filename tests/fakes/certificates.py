"""A certificate that nobody has signed, with its key, as PEM."""

import subprocess
from pathlib import Path

import pytest
from tests.fakes.needs import needs


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("certificate")
    subprocess.run(
        [
            *(needs("openssl"), "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-subj", "/CN=llm.example", "-days", "30", "-keyout", "key.pem", "-out", "certificate.pem"),
        ],
        cwd=directory,
        capture_output=True,
        check=True,
    )
    both = directory / "both.pem"
    both.write_text((directory / "key.pem").read_text() + (directory / "certificate.pem").read_text())
    return both
