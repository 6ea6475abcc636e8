#include "launcher/jobs/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string>

#include "base/text.h"
#include "base/text/json.h"
#include "launch/plan/secrets.h"

namespace dslaunch::launcher {
namespace {

bool is_name_character(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-';
}

std::string clean(std::string_view text, const NameMask& mask) {
    return mask.apply(launch::hide_secrets(text));
}

std::string clean_fact(const std::pair<std::string, std::string>& fact, const NameMask& mask) {
    if (launch::is_secret_name(fact.first)) return std::string(launch::kHiddenValue);
    return clean(fact.second, mask);
}

}  // namespace

void NameMask::add(const std::string& name, const std::string& word) {
    const bool is_number = parse_int(name).has_value();
    if (name.empty() || is_number || name == "localhost" || name == "root") return;
    for (const auto& [known, unused] : names_) {
        if (known == name) return;
    }
    auto found = std::find_if(words_.begin(), words_.end(),
                              [&](const auto& entry) { return entry.first == word; });
    if (found == words_.end()) found = words_.insert(words_.end(), {word, 0});
    names_.emplace_back(name, fmt::format("{}{}", word, ++found->second));
    // Longer names are replaced first: node10 before node1, a path before a part of it.
    std::stable_sort(names_.begin(), names_.end(),
                     [](const auto& a, const auto& b) { return a.first.size() > b.first.size(); });
}

std::string NameMask::apply(std::string_view text) const {
    std::string result;
    for (size_t at = 0; at < text.size();) {
        const bool at_word = at == 0 || !is_name_character(text[at - 1]);
        const auto found = std::find_if(names_.begin(), names_.end(), [&](const auto& entry) {
            const size_t end = at + entry.first.size();
            return at_word && text.substr(at).starts_with(entry.first) &&
                   (end == text.size() || !is_name_character(text[end]));
        });
        if (found == names_.end()) {
            result += text[at++];
        } else {
            result += found->second;
            at += found->first.size();
        }
    }
    return result;
}

std::string report_text(const std::vector<ReportSection>& sections, const NameMask& mask) {
    std::string text;
    for (const ReportSection& section : sections) {
        text += fmt::format("{}## {}\n", text.empty() ? "" : "\n", section.title);
        for (const auto& fact : section.facts) {
            text += fmt::format("  {:<20} {}\n", printable(fact.first),
                                printable(clean_fact(fact, mask)));
        }
        if (section.text.empty()) continue;
        for (const std::string& line : split(clean(section.text, mask), '\n')) {
            if (!line.empty()) text += "    " + printable(line) + "\n";
        }
    }
    return text;
}

std::string report_json(const std::vector<ReportSection>& sections, const NameMask& mask) {
    JsonWriter json;
    json.begin_array();
    for (const ReportSection& section : sections) {
        json.begin_object().field("title", section.title).key("facts").begin_object();
        for (const auto& fact : section.facts) json.field(fact.first, clean_fact(fact, mask));
        json.end_object().field("text", clean(section.text, mask)).end_object();
    }
    json.end_array();
    return json.text() + "\n";
}

}  // namespace dslaunch::launcher
