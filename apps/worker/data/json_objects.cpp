#include "worker/data/json_objects.h"

#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace dslaunch::worker {
namespace {

constexpr int kEnd = std::istream::traits_type::eof();
constexpr std::string_view kMark = "\xef\xbb\xbf";  // of UTF-8

bool is_blank(int byte) {
    return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r';
}

}  // namespace

bool JsonObjects::are_begun_by(std::string_view line) {
    if (line.starts_with(kMark)) line.remove_prefix(kMark.size());
    const std::string_view text = trim(line);
    return text.starts_with("[") || text == "{" || text.find("}\r{") != std::string_view::npos;
}

JsonObjects::JsonObjects(std::istream& in, std::string begin)
    : in_(in), begin_(std::move(begin) + "\n"), at_(begin_.starts_with(kMark) ? kMark.size() : 0) {
    held_ = sign();
    is_list_ = held_ == '[';
    if (is_list_) held_ = -1;
}

int JsonObjects::byte() {
    if (held_ >= 0) return std::exchange(held_, -1);
    if (at_ < begin_.size()) return static_cast<unsigned char>(begin_[at_++]);
    return in_.rdbuf()->sbumpc();
}

int JsonObjects::sign() {
    int found = byte();
    while (is_blank(found)) found = byte();
    return found;
}

bool JsonObjects::next(std::string& text, size_t bytes_max) {
    text.clear();
    int found = sign();
    while (found == ',') found = sign();
    if (is_list_ && found == ']') {
        require_end();
        return false;
    }
    if (found == kEnd) {
        if (is_list_)
            fail(ExitCode::kInput, "the file ends within its list: a part of it is missing");
        return false;
    }
    int depth = 0;
    bool is_in_text = false;
    for (;; found = byte()) {
        if (found == kEnd) return true;
        const bool ends_value = depth == 0 && !is_in_text && !text.empty();
        if (ends_value && (found == ',' || found == ']' || is_blank(found))) {
            held_ = found;
            return true;
        }
        if (text.size() < bytes_max) text += static_cast<char>(found);
        if (is_in_text && found == '\\') {
            const int next = byte();
            if (next != kEnd && text.size() < bytes_max) text += static_cast<char>(next);
        } else if (found == '"') {
            is_in_text = !is_in_text;
        } else if (!is_in_text) {
            depth += found == '{' || found == '[' ? 1 : found == '}' || found == ']' ? -1 : 0;
            if (depth == 0 && found == '}') return true;
        }
    }
}

void JsonObjects::require_end() {
    if (sign() != kEnd) fail(ExitCode::kInput, "the file goes on after the end of its list");
}

}  // namespace dslaunch::worker
