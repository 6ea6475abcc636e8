#include "text/chat_template/values/percent_format.h"

#include "text/chat_template/values/compare.h"
#include "text/chat_template/values/number_format.h"
#include "text/chat_template/values/points.h"
#include "text/chat_template/values/printing.h"

#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace dslaunch::text::jinja {
namespace {

class PercentFormatter {
  public:
    PercentFormatter(Meter& meter, std::string_view format, const Value& values)
        : meter_(meter), format_(format), values_(values) {}

    std::string run() {
        while (at_ < format_.size()) {
            const size_t percent = std::min(format_.find('%', at_), format_.size());
            out_ += format_.substr(at_, percent - at_);
            at_ = percent;
            meter_.check_bytes(out_.size());
            if (at_ < format_.size()) directive();
        }
        const bool by_order = values_.is(Kind::kTuple);
        const size_t given = by_order ? values_.items().size() : 1;
        const bool may_be_left =
            values_.is(Kind::kDict) || values_.is(Kind::kList) || values_.is(Kind::kUndefined);
        if (used_count_ < given && !used_name_ && (by_order || !may_be_left))
            throw Fault("not all values are used by the format");
        return std::move(out_);
    }

  private:
    [[nodiscard]] char next() const { return at_ < format_.size() ? format_[at_] : '\0'; }

    Value take() {
        const bool by_order = values_.is(Kind::kTuple);
        const size_t given = by_order ? values_.items().size() : 1;
        if (used_count_ >= given) throw Fault("the format asks for more values than there are");
        return by_order ? values_.items()[used_count_++] : (++used_count_, values_);
    }

    Value take_named() {
        const size_t end = format_.find(')', at_);
        if (end == std::string_view::npos) throw Fault("a `%(` of the format has no `)`");
        if (!values_.is(Kind::kDict)) throw Fault("the format asks for names: give a dict");
        const std::string name(format_.substr(at_ + 1, end - at_ - 1));
        at_ = end + 1;
        used_name_ = true;
        const Value* value = find_key(values_.dict(), name);
        if (value == nullptr) throw Fault(fmt::format("the format asks for '{}'", name));
        return *value;
    }

    int64_t take_number() {
        if (next() == '*') {
            ++at_;
            const Value number = take();
            if (!number.is(Kind::kInt) || std::abs(number.integral()) > kFieldMax)
                throw Fault("a `*` of the format needs a number");
            return number.integral();
        }
        int64_t number = 0;
        for (; is_digit(next()); ++at_)
            number = std::min<int64_t>(number * 10 + (next() - '0'), kFieldMax + 1);
        if (number > kFieldMax) throw Fault("a format asks for too many characters");
        return number;
    }

    void directive() {
        ++at_;  // the %
        std::optional<Value> named;
        if (next() == '(') named = take_named();
        FieldFormat field;
        bool is_zero = false;
        for (;; ++at_) {
            if (next() == '-') {
                field.align = '<';
            } else if (next() == '+' || (next() == ' ' && field.sign != '+')) {
                field.sign = next();
            } else if (next() == '#') {
                field.is_alternate = true;
            } else if (next() == '0') {
                is_zero = true;
            } else if (next() != ' ') {
                break;
            }
        }
        field.width_points = take_number();
        if (field.width_points < 0) {
            field.align = '<';
            field.width_points = -field.width_points;
        }
        if (next() == '.') ++at_, field.precision = std::max<int64_t>(0, take_number());
        while (next() == 'h' || next() == 'l' || next() == 'L') ++at_;
        if (at_ >= format_.size()) throw Fault("the format ends in the middle of a `%`");
        const char type = format_[at_++];
        meter_.step_text(size_t(field.width_points + field.precision.value_or(0)));
        if (type == '%') {
            out_ += '%';
            return;
        }
        const Value value = named ? *named : take();
        if (is_zero && field.align == '\0' && type != 's' && type != 'r' && type != 'a')
            field.fill = "0", field.align = '=';
        append(type, field, value);
    }

    void append(char type, FieldFormat& field, const Value& value) {
        switch (type) {
            case 's':
                return append_text(field, str_of(meter_, value));
            case 'r': {
                std::string text;
                append_repr(meter_, text, value);
                return append_text(field, text);
            }
            case 'c':
                return append_character(field, value);
            case 'd':
            case 'i':
            case 'u':
                return append_integer('d', field, value);
            case 'x':
            case 'X':
            case 'o':
                if (!value.is_integral() && !value.is(Kind::kLargeInt))
                    throw Fault("the format needs a whole number");
                return append_integer(type, field, value);
            case 'e':
            case 'E':
            case 'f':
            case 'F':
            case 'g':
            case 'G':
                if (!value.is_number()) throw Fault("the format needs a number");
                field.type = type;
                out_ += format_field(meter_, field, Value::real(value.as_double()));
                return;
            default:
                throw Fault(fmt::format("`%{}` is no format", printable(std::string(1, type))));
        }
    }

    void append_text(FieldFormat& field, const std::string& text) {
        FieldFormat plain;
        plain.width_points = field.width_points;
        plain.precision = field.precision;
        plain.align = field.align == '<' ? '<' : '>';
        out_ += format_field(meter_, plain, new_text(&meter_, text));
    }

    void append_character(FieldFormat& field, const Value& value) {
        std::string text;
        if (value.is_integral()) {
            text = format_field(meter_, parse_field("c"), value);
        } else if (value.is(Kind::kText) && value.text_object().points == 1) {
            text = value.text();
        } else {
            throw Fault("the format needs one character");
        }
        append_text(field, text);
    }

    void append_integer(char type, FieldFormat& field, const Value& value) {
        if (!value.is_number() && !value.is(Kind::kLargeInt))
            throw Fault("the format needs a number");
        int64_t number = value.is_integral() ? value.integral() : 0;
        if (value.is(Kind::kFloat)) {
            if (!std::isfinite(value.as_double())) throw Fault("the format needs a finite number");
            const Value whole =
                new_integer(nullptr, fmt::format("{:.0f}", std::trunc(value.as_double())));
            if (!whole.is_integral()) return append_integer(type, field, whole);
            number = whole.integral();
        }
        if (value.is(Kind::kLargeInt) && type != 'd')
            throw Fault("a number of the format does not fit 64 bits");
        if (value.is(Kind::kLargeInt)) number = value.text()[0] == '-' ? -1 : 1;
        std::string digits = value.is(Kind::kLargeInt) ? value.text().substr(number < 0 ? 1 : 0)
                                                       : integer_digits(number, type, false);
        const size_t wanted = size_t(field.precision.value_or(0));
        if (digits.size() < wanted) digits.insert(0, wanted - digits.size(), '0');
        std::string sign = number < 0 ? "-" : field.sign == '-' ? "" : std::string(1, field.sign);
        if (field.is_alternate && type != 'd') sign += std::string("0") + type;
        const size_t length = sign.size() + digits.size();
        const size_t missing =
            size_t(field.width_points) > length ? size_t(field.width_points) - length : 0;
        if (field.align == '<') {
            out_ += sign + digits + std::string(missing, ' ');
        } else if (field.align == '=') {
            out_ += sign + std::string(missing, '0') + digits;
        } else {
            out_ += std::string(missing, ' ') + sign + digits;
        }
    }

    Meter& meter_;
    std::string_view format_;
    const Value& values_;
    size_t at_ = 0;
    size_t used_count_ = 0;
    bool used_name_ = false;
    std::string out_;
};

}  // namespace

std::string percent_format(Meter& meter, std::string_view format, const Value& values) {
    return PercentFormatter(meter, format, values).run();
}

}  // namespace dslaunch::text::jinja
