#include "text/chat_template/run/expression_evaluator.h"

#include <fmt/format.h>

#include <utility>

#include "text/chat_template/functions/functions.h"
#include "text/chat_template/values/compare.h"
#include "text/chat_template/values/printing.h"

namespace dslaunch::text::jinja {
namespace {

constexpr size_t kScopeBytes = 256;

[[noreturn]] void fail_method(const Value& of, const std::string& name) {
    if (is_hidden_method(of, name))
        throw Fault(
            fmt::format("`{}` would change a {}, but a template cannot change its values: use `+`, "
                        "or a namespace",
                        name, type_name(of)));
    throw Fault(fmt::format("a value of type {} has no method `{}`", type_name(of), name));
}

}  // namespace

const Value* Scope::find(int name) const {
    for (const Scope* scope = this; scope != nullptr; scope = scope->parent)
        for (const auto& [number, value] : scope->variables)
            if (number == name) return &value;
    return nullptr;
}

void Scope::set(int name, Value value) {
    for (auto& [number, held] : variables) {
        if (number != name) continue;
        held = std::move(value);
        return;
    }
    variables.emplace_back(name, std::move(value));
}

void Scope::keep() {
    for (Scope* scope = this; scope != nullptr && !scope->is_kept; scope = scope->parent)
        scope->is_kept = true;
}

ScopePool::~ScopePool() {
    for (size_t i = 0; i < scopes_.size(); ++i) meter_.release(kScopeBytes);
}

Scope* ScopePool::open(Scope* parent) {
    if (free_.empty()) {
        meter_.hold(kScopeBytes);
        free_.push_back(&scopes_.emplace_back());
    }
    Scope* scope = free_.back();
    free_.pop_back();
    scope->parent = parent;
    return scope;
}

void ScopePool::close(Scope* scope) {
    if (scope->is_kept) return;
    scope->variables.clear();
    free_.push_back(scope);
}

Values ExpressionEvaluator::all_values(const std::vector<ExpressionPtr>& parts, Scope* scope) {
    Values values;
    values.reserve(parts.size());
    for (const ExpressionPtr& part : parts) values.push_back(eval(*part, scope));
    return values;
}

Arguments ExpressionEvaluator::eval_arguments(const CallArguments& given, Scope* scope) {
    Arguments arguments;
    arguments.positional = all_values(given.positional, scope);
    for (const auto& [name, value] : given.named)
        arguments.named.emplace_back(name, eval(*value, scope));
    if (given.more_positional != nullptr) {
        const Value more = eval(*given.more_positional, scope);
        for (Value& value : all_of(meter(), more)) arguments.positional.push_back(std::move(value));
    }
    if (given.more_named != nullptr) {
        const Value more = eval(*given.more_named, scope);
        if (!more.is(ValueKind::kDict)) throw Fault("`**` in a call needs a dict");
        for (const auto& [key, value] : more.dict().entries) {
            const std::string& name = required_text("**", key);
            for (const auto& [other, held] : arguments.named)
                if (other == name)
                    throw Fault(fmt::format("the argument `{}` is given twice", name));
            arguments.named.emplace_back(name, value);
        }
    }
    return arguments;
}

Value ExpressionEvaluator::eval_dict(const Expression& expression, Scope* scope) {
    std::vector<Entry> entries;
    for (size_t i = 0; i + 1 < expression.parts.size(); i += 2) {
        Value key = eval(*expression.parts[i], scope);
        put_entry(meter(), entries, std::move(key), eval(*expression.parts[i + 1], scope));
    }
    return new_dict(&meter(), std::move(entries));
}

bool ExpressionEvaluator::holds(Comparison comparison, const Value& a, const Value& b) {
    switch (comparison) {
        case Comparison::kEqual:
            return are_equal(meter(), a, b);
        case Comparison::kNotEqual:
            return !are_equal(meter(), a, b);
        case Comparison::kLess:
            return std::is_lt(order_of(meter(), a, b));
        case Comparison::kLessEqual:
            return std::is_lteq(order_of(meter(), a, b));
        case Comparison::kGreater:
            return std::is_gt(order_of(meter(), a, b));
        case Comparison::kGreaterEqual:
            return std::is_gteq(order_of(meter(), a, b));
        case Comparison::kIn:
            return contains(meter(), b, a);
        case Comparison::kNotIn:
            return !contains(meter(), b, a);
    }
    return false;
}

Value ExpressionEvaluator::eval_compare(const Expression& expression, Scope* scope) {
    Value left = eval(*expression.parts[0], scope);
    for (size_t i = 0; i < expression.comparisons.size(); ++i) {
        Value right = eval(*expression.parts[i + 1], scope);
        if (!holds(expression.comparisons[i], left, right)) return Value::boolean(false);
        left = std::move(right);
    }
    return Value::boolean(true);
}

// Evaluates a binary operator. A string on the left of `%` is a format.
Value ExpressionEvaluator::eval_operator(const Expression& expression, Scope* scope) {
    const Value left = eval(*expression.parts[0], scope);
    const Value right = eval(*expression.parts[1], scope);
    if (expression.op == Operator::kModulo && left.is(ValueKind::kText))
        return percent_format(runtime_, left, right);
    return apply_operator(meter(), expression.op, left, right);
}

Value ExpressionEvaluator::eval_item(const Expression& expression, Scope* scope) {
    const Value of = eval(*expression.parts[0], scope);
    const Expression& index = *expression.parts[1];
    if (index.kind != Expression::Kind::kSlice) {
        const Value key = eval(index, scope);
        line_ = expression.line;
        return item_of(runtime_, of, key);
    }
    Value bounds[3] = {Value::none(), Value::none(), Value::none()};
    for (size_t i = 0; i < 3; ++i)
        if (index.parts[i] != nullptr) bounds[i] = eval(*index.parts[i], scope);
    if (of.is(ValueKind::kUndefined)) {
        const std::string name = of.undefined_name();
        throw Fault(name.empty() ? "an undefined value is sliced"
                                 : fmt::format("'{}' is undefined", name));
    }
    return slice_of(meter(), of, bounds[0], bounds[1], bounds[2]);
}

Value ExpressionEvaluator::eval_filters(const Expression& filters, const Value& text,
                                        Scope* scope) {
    struct Restores {
        Value& place;
        Value before;
        ~Restores() { place = std::move(before); }
    } const restores{filtered_, std::exchange(filtered_, text)};
    return eval(filters, scope);
}

Value ExpressionEvaluator::eval_filter(const Expression& expression, Scope* scope) {
    const ExpressionPtr& input = expression.parts[0];
    const Value value = input != nullptr ? eval(*input, scope) : filtered_;
    const Arguments arguments = eval_arguments(expression.arguments, scope);
    line_ = expression.line;
    return apply_filter(runtime_, expression.name.text, value, arguments);
}

Value ExpressionEvaluator::eval_call(const Expression& expression, Scope* scope,
                                     const Value* caller) {
    const Expression& callee = *expression.parts[0];
    const auto arguments = [&] {
        Arguments given = eval_arguments(expression.arguments, scope);
        if (caller != nullptr) given.named.emplace_back("caller", *caller);
        line_ = expression.line;
        return given;
    };
    Value function;
    if (callee.kind == Expression::Kind::kAttribute) {
        const Value of = eval(*callee.parts[0], scope);
        line_ = callee.line;
        if (const Native* method = find_method(of, callee.name.text); method != nullptr)
            return call_native(runtime_, *method, of, arguments());
        function = attribute_of(runtime_, of, callee.name.text);
        if (function.is(ValueKind::kUndefined)) fail_method(of, callee.name.text);
    } else {
        function = eval(callee, scope);
    }
    Arguments given = arguments();
    const Depth depth(*this);
    if (function.is(ValueKind::kFunction)) return function.as<Function>().run(runtime_, given);
    const std::string name = function.undefined_name();
    throw Fault(name.empty()
                    ? fmt::format("a value of type {} cannot be called", type_name(function))
                    : fmt::format("'{}' is undefined and cannot be called", name));
}

Value ExpressionEvaluator::eval(const Expression& expression, Scope* scope) {
    using Of = Expression::Kind;
    const Depth depth(*this);
    meter().step();
    line_ = expression.line;
    const auto part = [&](size_t i) { return eval(*expression.parts[i], scope); };
    switch (expression.kind) {
        case Of::kConstant:
            return expression.constant;
        case Of::kName:
            if (const Value* value = scope->find(expression.name.number); value != nullptr)
                return *value;
            return Value::undefined(expression.name.text);
        case Of::kList:
            return new_list(&meter(), all_values(expression.parts, scope));
        case Of::kTuple:
            return new_tuple(&meter(), all_values(expression.parts, scope));
        case Of::kDict:
            return eval_dict(expression, scope);
        case Of::kNot:
            return Value::boolean(!is_true(part(0)));
        case Of::kNegative:
            return negated(part(0));
        case Of::kPositive: {
            const Value value = part(0);
            if (!value.is_number())
                throw Fault(
                    fmt::format("`+` cannot stand before a value of type {}", type_name(value)));
            return value.is(ValueKind::kBool) ? Value::integer(value.integral()) : value;
        }
        case Of::kAnd:
        case Of::kOr: {
            Value left = part(0);
            return is_true(left) == (expression.kind == Of::kAnd) ? part(1) : left;
        }
        case Of::kOperator:
            return eval_operator(expression, scope);
        case Of::kCompare:
            return eval_compare(expression, scope);
        case Of::kConcat: {
            std::string text;
            for (const ExpressionPtr& operand : expression.parts)
                append_str(meter(), text, eval(*operand, scope));
            return new_text(&meter(), std::move(text));
        }
        case Of::kChoice:
            if (is_true(part(0))) return part(1);
            return expression.parts[2] != nullptr ? part(2) : Value();
        case Of::kFilter:
            return eval_filter(expression, scope);
        case Of::kTest: {
            const Value input = part(0);
            return Value::boolean(apply_test(runtime_, expression.name.text, input,
                                             eval_arguments(expression.arguments, scope)));
        }
        case Of::kCall:
            return eval_call(expression, scope);
        case Of::kAttribute: {
            const Value of = part(0);
            line_ = expression.line;
            return attribute_of(runtime_, of, expression.name.text);
        }
        case Of::kItem:
            return eval_item(expression, scope);
        case Of::kSlice:
            throw Fault("a slice between commas is not supported");
    }
    return {};
}

}  // namespace dslaunch::text::jinja
