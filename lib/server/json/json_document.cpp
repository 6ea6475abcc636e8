#include "server/json/json_document.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "base/check.h"
#include "base/text.h"

namespace dslaunch::server {

// The reader of one text. Faults are thrown and caught inside this file only.
class JsonReader {
  public:
    JsonReader(JsonDocument& document, MemoryLease& lease)
        : document_(document), text_(document.text_), lease_(lease) {}

    struct Thrown {
        JsonFault fault;
    };
    void read();

  private:
    using Node = JsonDocument::Node;

    [[noreturn]] void refuse(const char* why) const {
        throw Thrown{{false, fmt::format("{} at byte {}", why, at_)}};
    }
    [[noreturn]] static void refuse_for_memory() {
        throw Thrown{{true, "other requests use all the memory that requests may use"}};
    }
    [[nodiscard]] bool is_next(char c) const { return at_ < text_.size() && text_[at_] == c; }
    [[nodiscard]] bool is_digit_next() const { return at_ < text_.size() && is_digit(text_[at_]); }
    void skip_blanks();
    void expect(char c, const char* why);
    Node& add(JsonKind kind);
    void value();
    void open(JsonKind kind);
    void go_on();
    void close();
    void check_keys(uint32_t object);
    void word(std::string_view word, JsonKind kind, bool flag);
    void number();
    void digits();
    void text();
    size_t escape(size_t to);
    uint32_t four_digits();

    JsonDocument& document_;
    std::string& text_;
    MemoryLease& lease_;
    size_t at_ = 0;
    std::array<uint32_t, JsonDocument::kDepthMax> open_{};
    size_t depth_ = 0;
    std::vector<uint32_t> keys_;  // the keys of an object, for sorting
};

void JsonReader::skip_blanks() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t'))
        ++at_;
}

void JsonReader::expect(char c, const char* why) {
    if (!is_next(c)) refuse(why);
    ++at_;
}

JsonReader::Node& JsonReader::add(JsonKind kind) {
    std::vector<Node>& nodes = document_.nodes_;
    if (!reserve(nodes, nodes.size() + 1, lease_)) refuse_for_memory();
    Node& node = nodes.emplace_back();
    node.kind = kind;
    node.end = static_cast<uint32_t>(nodes.size());
    return node;
}

void JsonReader::read() {
    constexpr std::string_view kMark = "\xef\xbb\xbf";
    if (text_.starts_with(kMark)) at_ = kMark.size();
    skip_blanks();
    value();
    while (depth_ > 0) go_on();
    skip_blanks();
    if (at_ != text_.size()) refuse("unexpected text after the value");
}

void JsonReader::value() {
    if (at_ == text_.size()) refuse("a value is missing");
    switch (text_[at_]) {
        case '{':
            return open(JsonKind::kObject);
        case '[':
            return open(JsonKind::kArray);
        case '"':
            return text();
        case 't':
            return word("true", JsonKind::kBool, true);
        case 'f':
            return word("false", JsonKind::kBool, false);
        case 'n':
            return word("null", JsonKind::kNull, false);
        default:
            return number();
    }
}

void JsonReader::open(JsonKind kind) {
    if (depth_ == open_.size())
        throw Thrown{
            {false, fmt::format("it is nested deeper than {} levels", JsonDocument::kDepthMax)}};
    ++at_;
    add(kind).place = {};
    open_[depth_++] = static_cast<uint32_t>(document_.nodes_.size() - 1);
}

// Reads one element of the innermost open value, or the end of this value.
void JsonReader::go_on() {
    const uint32_t owner = open_[depth_ - 1];
    const Node node = document_.nodes_[owner];
    const bool is_object = node.kind == JsonKind::kObject;
    skip_blanks();
    if (is_next(is_object ? '}' : ']')) return close();
    if (node.place.numel > 0) {
        expect(',', is_object ? "a comma or } is missing" : "a comma or ] is missing");
        skip_blanks();
    }
    ++document_.nodes_[owner].place.numel;
    if (is_object) {
        if (is_next('\'')) refuse("a key has single quotes, but needs double quotes (\")");
        if (!is_next('"')) refuse("a key in double quotes (\") is missing");
        text();
        skip_blanks();
        expect(':', "a colon is missing");
        skip_blanks();
    }
    value();
}

void JsonReader::close() {
    ++at_;
    const uint32_t owner = open_[--depth_];
    Node& node = document_.nodes_[owner];
    node.end = static_cast<uint32_t>(document_.nodes_.size());
    if (node.kind == JsonKind::kObject && node.place.numel > 1) check_keys(owner);
}

// Refuses an object with the same key twice: some programs use the first value, others the last.
void JsonReader::check_keys(uint32_t object) {
    const std::vector<Node>& nodes = document_.nodes_;
    keys_.clear();
    if (!reserve(keys_, nodes[object].place.numel, lease_)) refuse_for_memory();
    for (uint32_t key = object + 1; key < nodes[object].end; key = nodes[key + 1].end)
        keys_.push_back(key);
    const auto text_of = [&](uint32_t key) {
        return std::string_view(text_).substr(nodes[key].place.begin, nodes[key].place.numel);
    };
    std::ranges::sort(keys_, {}, text_of);
    if (std::ranges::adjacent_find(keys_, {}, text_of) != keys_.end())
        refuse("a key occurs twice in the object that ends");
}

void JsonReader::word(std::string_view word, JsonKind kind, bool flag) {
    if (std::string_view(text_).substr(at_, word.size()) != word) refuse("a value is missing");
    at_ += word.size();
    add(kind).marked = flag;
}

void JsonReader::digits() {
    if (is_next('\'')) refuse("a text has single quotes, but needs double quotes (\")");
    if (!is_digit_next()) refuse("a number or another value is missing");
    while (is_digit_next()) ++at_;
}

void JsonReader::number() {
    const size_t begin = at_;
    bool is_whole = true;
    if (is_next('-')) ++at_;
    if (is_next('0')) {
        ++at_;
    } else {
        digits();
    }
    if (is_next('.')) {
        is_whole = false;
        ++at_;
        digits();
    }
    if (is_next('e') || is_next('E')) {
        is_whole = false;
        ++at_;
        if (is_next('+') || is_next('-')) ++at_;
        digits();
    }
    const char* const first = text_.data() + begin;
    const char* const last = text_.data() + at_;
    Node& node = add(JsonKind::kInteger);
    if (is_whole && std::from_chars(first, last, node.integer).ec == std::errc()) return;
    node.kind = JsonKind::kReal;
    node.marked = is_whole;
    // The text was checked to be a number of JSON's grammar. Other forms that strtod() accepts
    // cannot occur here.
    const double real = std::strtod(first, nullptr);
    if (!std::isfinite(real)) refuse("a number is too large");
    if (is_whole) {
        node.place = {static_cast<uint32_t>(begin), static_cast<uint32_t>(at_ - begin)};
    } else {
        node.real = real;
    }
}

// Reads a text, and writes it over its own source: an escape is never shorter than its character.
void JsonReader::text() {
    size_t to = ++at_;
    const size_t begin = to;
    for (;;) {
        if (at_ == text_.size()) refuse("a string has no closing quote");
        const char c = text_[at_];
        if (c == '"') break;
        if (c == '\\') {
            to = escape(to);
            continue;
        }
        if (static_cast<unsigned char>(c) < 0x20) refuse("a string contains a control character");
        const size_t length = utf8_length(text_, at_);
        if (length == 0) refuse("a string is not valid UTF-8");
        if (to != at_) std::copy_n(text_.data() + at_, length, text_.data() + to);
        to += length;
        at_ += length;
    }
    ++at_;
    add(JsonKind::kText).place = {static_cast<uint32_t>(begin), static_cast<uint32_t>(to - begin)};
}

size_t JsonReader::escape(size_t to) {
    constexpr std::string_view kNames = "\"\\/bfnrt", kSaid = "\"\\/\b\f\n\r\t";
    ++at_;
    const char name = at_ < text_.size() ? text_[at_] : '\0';
    ++at_;
    if (name != 'u') {
        const size_t index = kNames.find(name);
        if (name == '\0' || index == kNames.npos) refuse("an escape is not valid in JSON");
        text_[to] = kSaid[index];
        return to + 1;
    }
    uint32_t code_point = four_digits();
    if (code_point >= 0xd800 && code_point < 0xdc00) {
        expect('\\', "a \\u escape is only half of a surrogate pair");
        expect('u', "a \\u escape is only half of a surrogate pair");
        const uint32_t low = four_digits();
        if (low < 0xdc00 || low > 0xdfff) refuse("a \\u escape is only half of a surrogate pair");
        code_point = 0x10000 + ((code_point - 0xd800) << 10) + (low - 0xdc00);
    } else if (code_point >= 0xdc00 && code_point < 0xe000) {
        refuse("a \\u escape is only half of a surrogate pair");
    }
    std::string character;
    append_utf8(character, code_point);
    character.copy(text_.data() + to, character.size());
    return to + character.size();
}

uint32_t JsonReader::four_digits() {
    uint32_t number = 0;
    const char* const first = text_.data() + at_;
    if (text_.size() - std::min(at_, text_.size()) < 4) refuse("an escape is cut off");
    const auto [end, error] = std::from_chars(first, first + 4, number, 16);
    if (error != std::errc() || end != first + 4)
        refuse("a \\u escape has fewer than four hexadecimal digits");
    at_ += 4;
    return number;
}

std::variant<JsonDocument, JsonFault> JsonDocument::read(std::string text, MemoryLease& lease) {
    DSL_CHECK(text.size() < size_t{1} << 31, "a document of {} bytes", text.size());
    JsonDocument document;
    document.text_ = std::move(text);
    try {
        JsonReader(document, lease).read();
    } catch (JsonReader::Thrown& thrown) {
        return std::move(thrown.fault);
    }
    return document;
}

JsonKind JsonView::kind() const {
    return document_->nodes_[at_].kind;
}

bool JsonView::is_large_integer() const {
    return is(JsonKind::kReal) && document_->nodes_[at_].marked;
}

bool JsonView::flag() const {
    DSL_CHECK(is(JsonKind::kBool), "no truth");
    return document_->nodes_[at_].marked;
}

int64_t JsonView::integer() const {
    DSL_CHECK(is(JsonKind::kInteger), "no integer");
    return document_->nodes_[at_].integer;
}

double JsonView::real() const {
    DSL_CHECK(is_number(), "no number");
    const JsonDocument::Node& node = document_->nodes_[at_];
    if (is_large_integer()) return std::strtod(std::string(digits()).c_str(), nullptr);
    return is(JsonKind::kReal) ? node.real : static_cast<double>(node.integer);
}

std::string_view JsonView::digits() const {
    DSL_CHECK(is_large_integer(), "no large integer");
    const auto place = document_->nodes_[at_].place;
    return std::string_view(document_->text_).substr(place.begin, place.numel);
}

std::string_view JsonView::text() const {
    DSL_CHECK(is(JsonKind::kText), "no text");
    const auto place = document_->nodes_[at_].place;
    return std::string_view(document_->text_).substr(place.begin, place.numel);
}

int64_t JsonView::elements() const {
    DSL_CHECK(is(JsonKind::kArray) || is(JsonKind::kObject), "no array or object");
    return document_->nodes_[at_].place.numel;
}

JsonView::Range JsonView::items() const {
    DSL_CHECK(is(JsonKind::kArray), "no array");
    return {{*document_, at_ + 1}, {*document_, document_->nodes_[at_].end}};
}

JsonView::Range JsonView::fields() const {
    DSL_CHECK(is(JsonKind::kObject), "no object");
    return {{*document_, at_ + 1}, {*document_, document_->nodes_[at_].end}};
}

std::optional<JsonView> JsonView::find(std::string_view key) const {
    DSL_CHECK(is(JsonKind::kObject), "no object");
    const std::vector<JsonDocument::Node>& nodes = document_->nodes_;
    for (uint32_t at = at_ + 1; at < nodes[at_].end; at = nodes[at + 1].end)
        if (JsonView(*document_, at).text() == key) return JsonView(*document_, at + 1);
    return std::nullopt;
}

JsonView::Range::Iterator& JsonView::Range::Iterator::operator++() {
    view_.at_ = view_.document_->nodes_[view_.at_].end;
    return *this;
}

}  // namespace dslaunch::server
