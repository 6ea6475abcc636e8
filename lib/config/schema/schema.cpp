#include "config/schema/schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "base/screen.h"
#include "base/text.h"
#include "config/read/train_config.h"

namespace dslaunch::config {

// The text of keys.tsv. The build generates the source file that defines it.
extern const std::string_view kKeysTable;

namespace {

constexpr std::array<std::string_view, 9> kTypeNames = {
    "bool", "integer", "number", "number or list", "string", "string or list",
    "list", "section", "any"};
constexpr std::array<std::string_view, 3> kStatusNames = {"supported", "no effect", "refused"};

std::string_view name_of(KeyType type) {
    return kTypeNames[static_cast<size_t>(type)];
}

std::string_view name_of(KeyStatus status) {
    return kStatusNames[static_cast<size_t>(status)];
}

// Returns the enumerator whose name in NAMES is WORD.
template <typename Enum, size_t N>
Enum named(const std::array<std::string_view, N>& names, std::string_view word) {
    const auto found = std::ranges::find(names, word);
    DSL_CHECK(found != names.end(), "`{}` in keys.tsv", word);
    return static_cast<Enum>(found - names.begin());
}

KeySpec& row_of(std::vector<KeySpec>& keys, std::string_view path) {
    const auto found = std::ranges::find(keys, path, &KeySpec::path);
    DSL_CHECK(found != keys.end(), "{} is no key of the schema", path);
    return *found;
}

KeySpec read_row(const std::string& line) {
    constexpr std::string_view kOtherName = "as ";
    std::vector<std::string> cells = split(line, '\t');
    cells.resize(8);
    KeySpec key;
    key.path = cells[0];
    if (cells[1].starts_with(kOtherName)) {
        key.same_as = cells[1].substr(kOtherName.size());
    } else {
        key.type = named<KeyType>(kTypeNames, cells[1]);
    }
    key.fallback = cells[2];
    key.allowed = cells[3];
    if (!cells[4].empty()) key.status = named<KeyStatus>(kStatusNames, cells[4]);
    key.doc = cells[5];
    key.only_for = cells[6];
    key.note = cells[7];
    return key;
}

std::string section_of(const std::string& path) {
    std::string section = path.substr(0, path.rfind('.'));
    if (section.ends_with(".[]")) section.resize(section.size() - 3);
    return section;
}

std::vector<KeySpec> read_table() {
    std::vector<KeySpec> keys;
    for (const std::string& line : split(kKeysTable, '\n')) {
        if (line.empty() || line.starts_with('#')) continue;
        keys.push_back(read_row(line));
        KeySpec& key = keys.back();
        if (key.status != KeyStatus::kSupported && key.note.empty())
            key.note = row_of(keys, section_of(key.path)).note;
    }
    for (KeySpec& name : keys) {
        if (name.same_as.empty()) continue;
        const KeySpec own = std::exchange(name, row_of(keys, name.same_as));
        name.path = own.path;
        name.doc = own.doc;
        name.same_as = own.same_as;
        if (!own.fallback.empty()) name.fallback = own.fallback;
        if (!own.allowed.empty()) name.allowed = own.allowed;
    }
    return keys;
}

// Returns true if the schema's PATTERN ("a.*.b") matches PATH, which has no wildcards. In find_key,
// exact names take precedence over "*".
bool covers(const std::vector<std::string>& pattern, const std::vector<std::string>& path) {
    return std::ranges::equal(pattern, path, [](const std::string& part, const std::string& name) {
        return part == "*" || part == name;
    });
}

std::string cell(std::string text) {
    for (size_t at = text.find('|'); at != std::string::npos; at = text.find('|', at + 2)) {
        text.replace(at, 1, "\\|");
    }
    return text;
}

std::string meaning(const KeySpec& key) {
    std::string text = key.doc;
    if (!key.only_for.empty())
        text += fmt::format(" (only {})", join(split(key.only_for, '|'), ", "));
    if (!key.note.empty()) text += fmt::format(". {}: {}", name_of(key.status), key.note);
    return text;
}

}  // namespace

const std::vector<KeySpec>& schema() {
    static const std::vector<KeySpec> keys = read_table();
    return keys;
}

const KeySpec* find_key(std::string_view path) {
    for (const KeySpec& key : schema()) {
        if (path == key.path) return &key;
    }
    std::vector<std::string> parts = split(path, '.');
    for (const KeySpec& key : schema()) {
        if (key.path.find('*') == std::string::npos) continue;
        if (covers(split(key.path, '.'), parts)) return &key;
    }
    return nullptr;
}

std::vector<std::string> key_names(std::string_view path) {
    std::vector<std::string> names;
    std::vector<std::string> parts = path.empty() ? std::vector<std::string>() : split(path, '.');
    for (const KeySpec& key : schema()) {
        std::vector<std::string> pattern = split(key.path, '.');
        std::string name = pattern.back();
        pattern.pop_back();
        if (covers(pattern, parts) && name != "*" && name != "[]") names.push_back(name);
    }
    return names;
}

Value default_value(const KeySpec& key) {
    TrainConfig scratch = empty_config();
    apply_override(scratch, "default=" + key.fallback, "default");
    Value value = scratch.root.items.front();
    bool whole = value.is(Value::Kind::kFloat) && key.type == KeyType::kInt;
    if (whole) value = make_value(int64_t(value.number));
    value.origin = "default";
    return value;
}

bool takes_auto(const KeySpec& key) {
    if (key.type == KeyType::kStrings) return false;
    const std::vector<std::string> words = split(key.allowed, '|');
    return key.type != KeyType::kString ||
           (words.size() > 1 && std::ranges::count(words, "auto") == 0);
}

std::string schema_markdown() {
    std::string page =
        "# Config keys\n\n"
        "Every key of ds_config.json that dslaunch accepts or refuses by name. This page is\n"
        "printed by `dslaunch config keys --markdown`; a test compares the two. `no effect`: the\n"
        "key is checked, but changes nothing here. `refused`: the key is an error, unless its\n"
        "value is null or the default, or its section is not enabled.\n\n"
        "| key | type | default | values | status | meaning |\n|---|---|---|---|---|---|\n";
    for (const KeySpec& key : schema()) {
        page += fmt::format("| `{}` | {} | {} | {} | {} | {} |\n", key.path, name_of(key.type),
                            cell(key.fallback), cell(key.allowed), name_of(key.status),
                            cell(meaning(key)));
    }
    page +=
        "\n## Refused\n\nThe keys that are refused, and why. A section in this table stands for "
        "all keys in the section.\n\n| key | why |\n|---|---|\n";
    std::string section;
    for (const KeySpec& key : schema()) {
        if (key.status != KeyStatus::kNotYet) continue;
        if (!section.empty() && key.path.starts_with(section)) continue;
        section = key.path + ".";
        page += fmt::format("| `{}` | {} |\n", key.path, cell(key.note));
    }
    return page;
}

std::string schema_text(size_t width) {
    std::string text;
    for (const KeySpec& key : schema()) {
        if (width > 0) {
            constexpr size_t kIndent = 4;
            const std::string facts = fmt::format("{}, {}, {}. {}", name_of(key.type), key.fallback,
                                                  name_of(key.status), meaning(key));
            text += fmt::format("{}\n{:{}}{}\n", key.path, "", kIndent,
                                wrapped(facts, {width, kIndent, kIndent}));
            continue;
        }
        text += fmt::format("{:<60} {:<8} {:<10} {:<10} {}\n", key.path, name_of(key.type),
                            key.fallback, name_of(key.status), meaning(key));
    }
    return text;
}

}  // namespace dslaunch::config
