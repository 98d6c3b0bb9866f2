"""Names of languages for the readers of a page, and DeepL's codes for them."""

from __future__ import annotations

from heedful.text.language_names import english_and_chinese_name

REGIONAL = {
    "en": {"EN-GB": "English (British)", "EN-US": "English (American)"},
    "pt": {"PT-BR": "Portuguese (Brazilian)", "PT-PT": "Portuguese (European)"},
    "zh": {"ZH": "Chinese (simplified)", "ZH-HANS": "Chinese (simplified)"},
    "zh-Hant": {"ZH-HANT": "Chinese (traditional)"},
}
"""The codes under which DeepL lists target languages that have several, and their names."""


OTHER_CODES = {"zt": "zh-Hant", "pb": "pt-BR"}
"""Codes of LibreTranslate's models, and what they mean."""
DETECT = "auto"
"""What stands for a source language that is to be detected."""


def display_name(code: str, accept_language: str = "") -> str:
    """The name of a language in the language that a browser asks for: Chinese, else English."""
    names = english_and_chinese_name(code)
    first = accept_language.split(",", 1)[0].strip().lower()
    return names.get("zh" if first.startswith("zh") else "en", code)


def deepl_source_codes(code: str) -> dict[str, str]:
    """DeepL's code of a source language, with its name."""
    return {deepl_source_code(code): display_name(code)}


def deepl_source_code(code: str) -> str:
    """DeepL's code of a source language, which has no region."""
    return code.split("-", 1)[0].upper()


def deepl_target_codes(code: str) -> dict[str, str]:
    """DeepL's codes of a target language, with their names."""
    return REGIONAL.get(code, {code.upper(): display_name(code)})
