from clotho.tools.result_budget import block, unfolded


def test_json_is_unfolded_into_lines() -> None:
    assert unfolded('{"output": "a\\nb", "exit_code": 1, "matches": [{"line": 1}]}') == (
        'output:\na\nb\nexit_code: 1\nmatches:\n[\n {\n  "line": 1\n }\n]'
    )
    assert unfolded("[1]") == "[1]" and unfolded("{broken") == "{broken"


def test_a_block_says_how_much_where_and_how_it_begins() -> None:
    shown = block("é" * 1_000 + "\n" + "x" * 200_000, "/tmp/r.txt", 1_500)
    assert "201,001 characters, 197.3 KB" in shown and "/tmp/r.txt" in shown and "read_file" in shown
    assert "Preview (first 1,001 characters):\nééé" in shown
    assert "not kept" in block("x" * 5_000, None, 100)
