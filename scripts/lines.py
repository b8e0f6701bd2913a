"""Print how many lines the packages of src/tenure have, and how many of them each store."""

from collections import Counter
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "tenure"
KINDS = {".py", ".lua", ".sql"}


def main() -> None:
    packages: Counter[str] = Counter()
    stores: Counter[str] = Counter()
    for file in SOURCE.rglob("*"):
        if file.suffix not in KINDS:
            continue
        lines = len(file.read_text(encoding="utf-8").splitlines())
        package, *rest = file.relative_to(SOURCE).parts
        packages[package if rest else "(modules)"] += lines
        if package == "stores":
            stores[rest[0] if len(rest) > 1 else "(modules)"] += lines
    report("src/tenure", packages)
    report("src/tenure/stores", stores)


def report(title: str, lines: Counter[str]) -> None:
    print(f"{title:24}{lines.total():8,}")
    for name, number in lines.most_common():
        print(f"  {name:22}{number:8,}")


if __name__ == "__main__":
    main()
