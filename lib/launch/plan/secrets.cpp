#include "launch/plan/secrets.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <regex>

#include "launch/plan/environment_file.h"

namespace dslaunch::launch {
namespace {

bool contains(std::string_view text, std::string_view word) {
    return text.find(word) != std::string_view::npos;
}

char upper(char c) {
    return static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
}

bool is_name_character(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.';
}

// Returns the end of the value that begins at BEGIN: the quote that matches its opening quote, else
// white space or a character that ends a value in JSON, YAML or shells.
size_t value_end(std::string_view line, size_t begin) {
    if (begin >= line.size()) return begin;
    // In an HTTP header, a scheme precedes the secret and is treated as a part of it.
    for (const std::string_view scheme : {"Bearer ", "bearer ", "Basic ", "basic "}) {
        if (line.substr(begin).starts_with(scheme)) return value_end(line, begin + scheme.size());
    }
    const char quote = line[begin];
    if (quote == '"' || quote == '\'') {
        for (size_t i = begin + 1; i < line.size(); ++i) {
            if (line[i] == '\\') {
                ++i;
            } else if (line[i] == quote) {
                return i + 1;
            }
        }
        return line.size();
    }
    return std::min(line.find_first_of(" \t,;&\"'}])", begin), line.size());
}

// Returns the position at which the value begins for a name that ends at NAME_END: after `=`, `:`
// or, for an option, blanks.
size_t value_begin(std::string_view line, size_t name_end, bool is_option) {
    size_t at = name_end;
    if (at < line.size() && (line[at] == '"' || line[at] == '\'')) ++at;  // the end of "NAME"
    const size_t sign = line.find_first_not_of(" \t", at);
    if (sign == std::string_view::npos) return sign;
    if (line[sign] == '=' || line[sign] == ':') {
        const size_t begin = line.find_first_not_of(" \t", sign + 1);
        // scheme://… is not a variable's value
        if (line[sign] == ':' && line.substr(sign).starts_with("://"))
            return std::string_view::npos;
        return begin;
    }
    return is_option && sign > at ? sign : std::string_view::npos;
}

// Hides the values of names that suggest a secret.
std::string hide_named_values(std::string_view line) {
    std::string text;
    size_t done = 0;
    for (size_t i = 0; i < line.size();) {
        if (!is_name_character(line[i])) {
            ++i;
            continue;
        }
        size_t end = i;
        while (end < line.size() && is_name_character(line[end])) ++end;
        const std::string_view name = line.substr(i, end - i);
        const bool is_option = name.starts_with('-');
        const size_t value =
            is_secret_name(name) ? value_begin(line, end, is_option) : std::string_view::npos;
        i = end;
        if (value == std::string_view::npos) continue;
        text.append(line.substr(done, value - done)).append(kHiddenValue);
        done = i = value_end(line, value);
    }
    return text.append(line.substr(done));
}

std::string hide_known_forms(const std::string& line) {
    static const std::regex kUrlPassword(R"(([A-Za-z][A-Za-z0-9+.-]*://[^\s:/@]*):[^\s/@]+@)");
    static const std::regex kTokens(
        R"(\b(hf_|ghp_|gho_|ghs_|github_pat_|glpat-|sk-|xox[abprs]-|AKIA|ASIA|ya29\.|eyJ))"
        R"([A-Za-z0-9_.\-]{12,})");
    // The address of a webhook is itself a secret: https://hooks.slack.com/services/…
    static const std::regex kWebhook(
        R"((https?://(hooks\.[^\s/]+|[^\s/]+/(api/)?webhooks?)/)[^\s"'<>)]+)", std::regex::icase);
    static const std::regex kKeyInUrl(R"(([A-Za-z][A-Za-z0-9+.-]*://)[A-Za-z0-9]{20,}@)");
    static const std::regex kSignature(
        R"(([?&](sig|signature|x-amz-signature|x-goog-signature)=)[^\s&"']+)", std::regex::icase);
    static const std::regex kBearer(R"(\b([Bb]earer|[Bb]asic) [A-Za-z0-9+/=_.\-]{8,})");
    const std::string hidden(kHiddenValue);
    std::string text = std::regex_replace(line, kUrlPassword, "$1:" + hidden + "@");
    text = std::regex_replace(text, kWebhook, "$1" + hidden);
    text = std::regex_replace(text, kKeyInUrl, "$1" + hidden + "@");
    text = std::regex_replace(text, kSignature, "$1" + hidden);
    text = std::regex_replace(text, kTokens, hidden);
    return std::regex_replace(text, kBearer, "$1 " + hidden);
}

// Returns true if a part of WORD, a name in capitals, suggests a secret; parts are separated by
// `_`, `-` and `.`.
bool has_telling_part(std::string_view word) {
    if (word.starts_with("XDG_SESSION") || word.starts_with("DBUS_SESSION")) return false;
    if (word == "DESKTOP_SESSION") return false;
    for (size_t at = 0; at <= word.size();) {
        const size_t end = std::min(word.find_first_of("_-.", at), word.size());
        const std::string_view part = word.substr(at, end - at);
        for (const std::string_view telling :
             {"DSN", "SESSION", "SESSIONID", "COOKIE", "COOKIES", "SIG", "SIGNATURE"}) {
            if (part == telling) return true;
        }
        at = end + 1;
    }
    return false;
}

}  // namespace

bool is_secret_name(std::string_view name) {
    std::string word(name);
    std::transform(word.begin(), word.end(), word.begin(), upper);
    if (word == "SSH_AUTH_SOCK") return false;  // a path
    if (contains(word, "AUTHORIZATION")) return true;
    // HF_TOKENIZERS_…, TOKENIZER_PATH and numbers of tokens are not secrets.
    for (const std::string_view harmless : {"TOKENIZER", "TOKENS", "PASSED", "PASSIVE", "BYPASS",
                                            "KEYERROR", "KEYWORD", "KEYBOARD", "AUTHOR"}) {
        for (size_t at = word.find(harmless); at != std::string::npos; at = word.find(harmless))
            word.erase(at, harmless.size());
    }
    for (const std::string_view telling :
         {"KEY", "TOKEN", "SECRET", "PASS", "_PWD", "CREDENTIAL", "AUTH", "WEBHOOK"}) {
        if (contains(word, telling)) return true;
    }
    return has_telling_part(word);
}

bool is_shown_in_files(std::string_view name) {
    static constexpr std::string_view kNames[] = {
        "PATH",        "LD_LIBRARY_PATH", "LD_PRELOAD",  "PYTHONPATH", "HOME", "USER",   "SHELL",
        "LANG",        "LANGUAGE",        "TZ",          "TERM",       "PWD",  "TMPDIR", "HOSTNAME",
        "VIRTUAL_ENV", "CONDA_PREFIX",    "SLURM_JOB_ID"};
    static constexpr std::string_view kPrefixes[] = {"LC_", "CUDA_", "OPENBLAS_", "MALLOC_"};
    return is_rank_variable(name) || has_forwarded_prefix(name) ||
           std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames) ||
           std::any_of(std::begin(kPrefixes), std::end(kPrefixes),
                       [&](std::string_view prefix) { return name.starts_with(prefix); });
}

bool holds_password(std::string_view value) {
    const size_t scheme = value.find("://");
    if (scheme == std::string_view::npos) return false;
    const std::string_view authority =
        value.substr(scheme + 3, value.find('/', scheme + 3) - scheme - 3);
    const size_t at = authority.find('@');
    return at != std::string_view::npos && contains(authority.substr(0, at), ":");
}

std::string shown_value(std::string_view name, std::string_view value) {
    if (is_secret_name(name) || holds_password(value)) return std::string(kHiddenValue);
    return hide_secrets(value);
}

std::string hide_secrets(std::string_view text) {
    constexpr size_t kLineMax = 4096;  // longest line for patterns; longer lines are cut
    std::string result;
    bool in_key = false;
    while (!text.empty()) {
        const size_t newline = text.find('\n');
        std::string_view line = text.substr(0, newline);
        const bool cut = line.size() > kLineMax;
        line = line.substr(0, kLineMax);
        const bool shown = !in_key;
        const bool begins = contains(line, "-----BEGIN ") && contains(line, "PRIVATE KEY");
        if (shown && begins) {
            result.append(kHiddenValue).append(" private key");
        } else if (shown) {
            result += hide_known_forms(hide_named_values(line));
            if (cut) result += " (cut)";
        }
        in_key = (in_key || begins) && !contains(line, "-----END ");
        if (newline == std::string_view::npos) break;
        if (shown) result += '\n';
        text.remove_prefix(newline + 1);
    }
    return result;
}

std::vector<std::string> hide_in_command(const std::vector<std::string>& words) {
    std::vector<std::string> shown;
    bool is_value = false;
    for (const std::string& word : words) {
        shown.push_back(is_value ? std::string(kHiddenValue) : hide_secrets(word));
        is_value = word.starts_with('-') && !contains(word, "=") && is_secret_name(word);
    }
    return shown;
}

}  // namespace dslaunch::launch
