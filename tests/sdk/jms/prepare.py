"""Builds the program of JMS scenarios, once for each generation of Qpid JMS, and the one with Spring's starter.

Uses the standard library only.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from ...building import Build, build
from ...toolchains import BRIEF_JAVA

PROGRAM: Final = Path(__file__).resolve().parent / "program"
SPRING: Final = Path(__file__).resolve().parent / "spring"
_MAVEN: Final = ("env", f"MAVEN_OPTS={' '.join(BRIEF_JAVA)}", "mvn", "-q", "-B")
_SOURCES: Final = ("pom.xml", "src/**/*")
_TO_JAVAX: Final = (
    "mkdir -p target/javax/src/emubus && cp -r src/main/java/emubus/jms target/javax/src/emubus && "
    "sed -i 's/import jakarta\\./import javax./; s/import com\\.\\(azure\\.servicebus\\)/import com.microsoft.\\1/' "
    "target/javax/src/emubus/jms/*.java"
)
_JAVAX: Final = (
    *("-Dqpid.version=1.13.0", "-Dlibrary.group=com.microsoft.azure", "-Dlibrary.version=1.0.0"),
    *("-Djms.sources=target/javax/src", "-Djms.output=target/javax/out"),
)
BUILDS: Final = {
    "qpid-jms-1": Build(
        folder=PROGRAM,
        sources=_SOURCES,
        output=PROGRAM / "target" / "javax",
        commands=(("sh", "-c", _TO_JAVAX), (*_MAVEN, "package", *_JAVAX)),
    ),
    "qpid-jms-2": Build(
        folder=PROGRAM,
        sources=_SOURCES,
        output=PROGRAM / "target" / "jakarta",
        commands=((*_MAVEN, "package", "-Djms.output=target/jakarta/out"),),
    ),
    "spring-jms": Build(
        folder=SPRING,
        sources=_SOURCES,
        output=SPRING / "target",
        commands=((*_MAVEN, "package"),),
    ),
}


def jar(name: str) -> Path:
    """The program of scenarios with a generation of Qpid JMS."""
    return BUILDS[name].output / "out" / "jms.jar"


def spring_jar() -> Path:
    """The program with Spring's starter."""
    return BUILDS["spring-jms"].output / "spring.jar"


def builders() -> dict[str, Callable[[], bool]]:
    """The things to build, by name."""
    return {name: partial(build, f"the program of {name}", wanted) for name, wanted in BUILDS.items()}
