#include "text/chat_template/objects/methods.h"
#include "text/chat_template/values/letters.h"
#include "text/chat_template/values/points.h"

namespace dslaunch::text::jinja {
namespace {

// str.isalpha() and its like: there is a character, and each is of the class.
template <bool (*kIs)(uint32_t)>
Value all_are(Runtime& runtime, const Value& self, const Arguments& arguments) {
    static_cast<void>(bind("the method", arguments, {}, 0));
    const std::string& text = self.text();
    runtime.meter().step_text(text.size() * 16);
    for (size_t i = 0; i < text.size(); i += point_bytes(text[i]))
        if (!kIs(point_at(text, i))) return Value::boolean(false);
    return Value::boolean(!text.empty());
}

bool is_alnum_point(uint32_t point) {
    return is_alpha_point(point) || is_numeric_point(point);
}

// There is a letter of the case, and none of the other.
template <bool (*kIs)(uint32_t), bool (*kIsOther)(uint32_t)>
Value has_case(Runtime& runtime, const Value& self, const Arguments& arguments) {
    static_cast<void>(bind("the method", arguments, {}, 0));
    const std::string& text = self.text();
    runtime.meter().step_text(text.size() * 16);
    bool any = false;
    for (size_t i = 0; i < text.size(); i += point_bytes(text[i])) {
        const uint32_t point = point_at(text, i);
        if (kIsOther(point)) return Value::boolean(false);
        any = any || kIs(point);
    }
    return Value::boolean(any);
}

Value is_ascii_text(Runtime& /*runtime*/, const Value& self, const Arguments& arguments) {
    static_cast<void>(bind("isascii()", arguments, {}, 0));
    return Value::boolean(self.text_object().is_ascii());
}

Value is_printable_text(Runtime& runtime, const Value& self, const Arguments& arguments) {
    if (self.text().empty()) return Value::boolean(true);
    return all_are<is_printable_point>(runtime, self, arguments);
}

Value is_title_text(Runtime& /*runtime*/, const Value& self, const Arguments& arguments) {
    static_cast<void>(bind("istitle()", arguments, {}, 0));
    const std::string& text = self.text();
    bool in_word = false;
    bool any = false;
    for (size_t i = 0; i < text.size(); i += point_bytes(text[i])) {
        const bool is_upper = is_upper_point(point_at(text, i));
        const bool is_lower = is_lower_point(point_at(text, i));
        if ((is_upper && in_word) || (is_lower && !in_word)) return Value::boolean(false);
        in_word = is_upper || is_lower;
        any = any || in_word;
    }
    return Value::boolean(any);
}

Value is_identifier_text(Runtime& /*runtime*/, const Value& self, const Arguments& arguments) {
    static_cast<void>(bind("isidentifier()", arguments, {}, 0));
    const std::string& text = self.text();
    for (size_t i = 0; i < text.size(); i += point_bytes(text[i])) {
        const uint32_t point = point_at(text, i);
        const bool may =
            point == '_' || is_alpha_point(point) || (i > 0 && is_decimal_point(point));
        if (!may) return Value::boolean(false);
    }
    return Value::boolean(!text.empty());
}

Value not_supported(Runtime& /*runtime*/, const Value& /*self*/, const Arguments& /*arguments*/) {
    throw Fault("the methods encode(), translate() and maketrans() are not supported");
}

constexpr Method kTextClassMethods[] = {
    {"isalnum", all_are<is_alnum_point>},
    {"isalpha", all_are<is_alpha_point>},
    {"isascii", is_ascii_text},
    {"isdecimal", all_are<is_decimal_point>},
    {"isdigit", all_are<is_digit_point>},
    {"isidentifier", is_identifier_text},
    {"islower", has_case<is_lower_point, is_upper_point>},
    {"isnumeric", all_are<is_numeric_point>},
    {"isprintable", is_printable_text},
    {"isspace", all_are<is_space_point>},
    {"istitle", is_title_text},
    {"isupper", has_case<is_upper_point, is_lower_point>},
    {"encode", not_supported},
    {"maketrans", not_supported},
    {"translate", not_supported},
};

}  // namespace

std::span<const Method> text_class_methods() {
    return kTextClassMethods;
}

}  // namespace dslaunch::text::jinja
