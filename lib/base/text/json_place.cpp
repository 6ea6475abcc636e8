#include "base/text/json_place.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "base/text/file_faults.h"

namespace dslaunch {

namespace {

constexpr int kDepthMax = 200;
constexpr size_t kShownMax = 80;  // bytes of a bad value in a message

// Returns the path from VALUE to WANTED, "graph.nodes[3].target"; nothing if WANTED is not inside
// VALUE. It is called only for errors, so that a JsonPlace need not store its path.
std::optional<std::string> way_to(const nlohmann::json& value, const nlohmann::json* wanted) {
    if (&value == wanted) return "";
    if (!value.is_structured()) return std::nullopt;
    for (const auto& item : value.items()) {
        const std::optional<std::string> rest = way_to(item.value(), wanted);
        if (!rest) continue;
        const std::string step =
            value.is_array() ? "[" + item.key() + "]" : std::string(printable(item.key()));
        const bool dot = !rest->empty() && rest->front() != '[';
        return step + (dot ? "." : "") + *rest;
    }
    return std::nullopt;
}

}  // namespace

// Parses with a callback that refuses equal keys in an object; without it, nlohmann would keep only
// the last of equal keys.
JsonPlace::Json JsonPlace::parse(const std::string& path, std::string_view text) {
    std::vector<std::set<std::string>> keys;
    const auto watch = [&](int depth, Json::parse_event_t event, Json& value) {
        if (depth > kDepthMax) fail(ExitCode::kInput, "{}: its JSON is nested too deeply", path);
        if (event == Json::parse_event_t::object_start) keys.emplace_back();
        if (event == Json::parse_event_t::object_end) keys.pop_back();
        if (event == Json::parse_event_t::key && !keys.back().insert(value).second)
            fail(ExitCode::kInput, "{}: its JSON contains the key `{}` twice", path,
                 printable(value.get<std::string>()));
        return true;
    };
    try {
        return Json::parse(text, watch);
    } catch (const Json::exception& error) {
        if (const std::string fault = download_fault(text); !fault.empty())
            fail(ExitCode::kInput, "{}: {}", path, fault);
        const auto* const bad = dynamic_cast<const Json::parse_error*>(&error);
        if (bad != nullptr && bad->byte > text.size())
            fail(ExitCode::kInput,
                 "{}: is not valid JSON: it ends in the middle, after {} bytes: the download, copy "
                 "or program that wrote it was interrupted; fetch or make it again",
                 path, text.size());
        std::string_view why = error.what();  // "[json.exception.parse_error.101] parse error at …"
        if (why.starts_with('[')) why.remove_prefix(std::min(why.find("] ") + 2, why.size()));
        fail(ExitCode::kInput, "{}: is not valid JSON: {}", path, printable(why));
    }
}

void JsonPlace::refuse(const std::string& why) const {
    const std::string way = way_to(*root_, json_).value_or("");
    fail(ExitCode::kInput, "{}: {}{}{}", *path_, way, way.empty() ? "" : ": ", why);
}

void JsonPlace::expect(bool is_so, std::string_view kind) const {
    if (is_so) return;
    std::string shown = json_->dump(-1, ' ', true, Json::error_handler_t::replace);
    if (shown.size() > kShownMax) shown = shown.substr(0, kShownMax) + "…";
    refuse(fmt::format("{} is expected, not {}", kind, printable(shown)));
}

void JsonPlace::expect_object(std::initializer_list<std::string_view> allowed) const {
    expect(json_->is_object(), "an object");
    for (const auto& item : json_->items())
        if (std::find(allowed.begin(), allowed.end(), item.key()) == allowed.end())
            refuse(
                fmt::format("this version does not support the field `{}`", printable(item.key())));
}

bool JsonPlace::has(const char* key) const {
    expect(json_->is_object(), "an object");
    const auto found = json_->find(key);
    return found != json_->end() && !found->is_null();
}

bool JsonPlace::mentions(const char* key) const {
    expect(json_->is_object(), "an object");
    return json_->contains(key);
}

JsonPlace JsonPlace::at(const char* key) const {
    expect(json_->is_object(), "an object");
    const auto found = json_->find(key);
    if (found == json_->end()) refuse(fmt::format("the field `{}` is missing", key));
    return to(*found);
}

int64_t JsonPlace::integer() const {
    const bool fits = json_->is_number_integer() &&
                      (!json_->is_number_unsigned() ||
                       json_->get<uint64_t>() <= std::numeric_limits<int64_t>::max());
    expect(fits, "an integer");
    return json_->get<int64_t>();
}

double JsonPlace::number() const {
    if (json_->is_string()) {
        const std::string& word = json_->get_ref<const std::string&>();
        if (word == "Infinity") return std::numeric_limits<double>::infinity();
        if (word == "-Infinity") return -std::numeric_limits<double>::infinity();
        if (word == "NaN") return std::numeric_limits<double>::quiet_NaN();
    }
    expect(json_->is_number(), "a number");
    return json_->get<double>();
}

bool JsonPlace::boolean() const {
    expect(json_->is_boolean(), "true or false");
    return json_->get<bool>();
}

const std::string& JsonPlace::text() const {
    expect(json_->is_string(), "a text");
    return json_->get_ref<const std::string&>();
}

std::pair<std::string, JsonPlace> JsonPlace::only() const {
    expect(json_->is_object() && json_->size() == 1, "an object with one field");
    return {json_->begin().key(), to(json_->begin().value())};
}

}  // namespace dslaunch
