"""Store and warehouse in a bucket, without a JVM."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from datetime import timedelta
from pathlib import Path

import boto3
import pytest

from jobs import inconsistency, nightly, pulls, verify
from schemas.delta.warehouse import Lease, Warehouse, utc_now
from schemas.errors import UsageError, WarehouseBusy, WarehouseUnusable
from schemas.storage import Storage
from tests.captures import capture
from tests.cluster.processes import Server
from tests.nights.commands import arguments, differing, living, without_runs

BUCKET = "s3://broker-logs"
SETTINGS = {
    "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1", "AWS_ALLOW_HTTP": "true",
}  # fmt: skip
Upload = Callable[[Path, str], str]


@pytest.fixture(scope="module")
def upload() -> Iterator[Upload]:
    """Puts a folder into the bucket of an S3 server. Returns its URI."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SETTINGS.items():
            patch.setenv(name, value)
        with Server([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"], {}) as server:
            address = re.search(r"http://[\d.:]+", server.wait_for("Running on"))
            assert address is not None
            patch.setenv("AWS_ENDPOINT_URL", address[0])
            client = boto3.client("s3", region_name="us-east-1", endpoint_url=address[0])
            name = BUCKET.removeprefix("s3://")
            client.create_bucket(Bucket=name)

            def upload(folder: Path, key: str) -> str:
                for file in folder.rglob("*"):
                    if file.is_file():
                        client.put_object(Bucket=name, Key=f"{key}/{file.relative_to(folder)}", Body=file.read_bytes())
                return f"{BUCKET}/{key}"

            yield upload
            client.close()


def in_bucket(command: list[str], store: str) -> list[str]:
    """The command line with another store."""
    return [store if before == "--store" else given for before, given in zip(["", *command], command, strict=False)]


def test_nights_and_answers(upload: Upload, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two nights of a living broker in a bucket are those of a folder, and so are the answers."""
    warehouse = f"{BUCKET}/tables"
    for night in (1, 2):
        store = upload(capture("nights_dev") / f"night_{night}" / "store", f"night {night}/store")
        nightly.main(in_bucket(living(night, warehouse.replace("s3:", "s3a:")), store))
        nightly.main(living(night, tmp_path))
    assert differing(without_runs(Warehouse.at(warehouse)), without_runs(tmp_path)) == []
    answers = []
    for place in (warehouse, str(tmp_path)):
        capsys.readouterr()
        pulls.main(["--group", "cg_expired", "--topic", "OrderEvents", "--warehouse", place])
        inconsistency.main(["--warehouse", place])
        answers.append(capsys.readouterr().out)
    assert answers[0] == answers[1]
    assert "found" in answers[0]
    nightly.main(in_bucket(living(2, warehouse), store))
    assert "There was nothing new" in capsys.readouterr().out


def test_verify_in_a_bucket(upload: Upload, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = upload(capture("small") / "store", "verified")
    nightly.main(in_bucket(arguments("small", tmp_path), store))
    capsys.readouterr()
    verify.main(["--store", store, "--warehouse", str(tmp_path)])
    assert capsys.readouterr().out.startswith("identical: ")


@pytest.mark.usefixtures("upload")
def test_one_run_at_a_time() -> None:
    warehouse = Warehouse.at(f"{BUCKET}/contended")

    def refusal(held: ExitStack) -> str | None:
        try:
            held.enter_context(warehouse.writing())
        except WarehouseBusy as error:
            return str(error)
        return None

    with ExitStack() as held, ThreadPoolExecutor(8) as threads:
        refusals = [text for text in threads.map(refusal, [held] * 8) if text is not None]
    assert len(refusals) == 7
    for text in refusals:
        assert f"process {os.getpid()}, since " in text
        assert re.search(r"if it was killed, the next run takes over from [0-9:]{8} UTC on$", text)


@pytest.mark.usefixtures("upload")
def test_a_killed_runs_lock_ends() -> None:
    lock, later = Storage(f"{BUCKET}/killed/.lock"), utc_now() + timedelta(minutes=11)

    def take(_: int) -> Lease | None:
        with suppress(WarehouseBusy):
            return Lease.take(lock, BUCKET, lambda: later)
        return None

    killed = Lease.take(lock, BUCKET)
    assert killed.renew()
    with ThreadPoolExecutor(8) as threads:
        [taken] = [lease for lease in threads.map(take, range(8)) if lease is not None]
    assert (killed.renew(), taken.renew()) == (False, True)
    taken.release()
    assert lock.files(recursive=True) == []


@pytest.mark.usefixtures("upload")
def test_the_lock_ends_with_the_run() -> None:
    warehouse = Warehouse.at(f"{BUCKET}/free")
    with pytest.raises(RuntimeError), warehouse.writing():
        raise RuntimeError
    with warehouse.writing():
        pass
    assert warehouse.storage.files(recursive=True) == []


@pytest.mark.usefixtures("upload")
def test_no_such_bucket(tmp_path: Path) -> None:
    with pytest.raises(
        WarehouseUnusable, match=r"^cannot write to s3://nowhere/tables \([^\n\x1b]+\): check the bucket"
    ):
        Warehouse.at("s3://nowhere/tables").writing().__enter__()
    with pytest.raises(UsageError, match=r"^--store: [^\n\x1b]+$"):
        nightly.main(["--store", "s3://nowhere/store", "--warehouse", str(tmp_path)])
