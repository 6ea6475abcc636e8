#include "text/chat_template/run/evaluator.h"

#include "text/chat_template/filters/filters.h"
#include "text/chat_template/filters/tests.h"
#include "text/chat_template/objects/attributes.h"
#include "text/chat_template/objects/loop_state.h"
#include "text/chat_template/objects/methods.h"
#include "text/chat_template/objects/slices.h"
#include "text/chat_template/values/compare.h"
#include "text/chat_template/values/printing.h"

#include <fmt/format.h>

#include <utility>

namespace dslaunch::text::jinja {

namespace {

[[noreturn]] void fail_method(const Value& of, const std::string& name) {
    if (is_hidden_method(of, name))
        throw Fault(
            fmt::format("`{}` would change a {}, and a template's values do not change: use "
                        "`+`, or a namespace",
                        name, type_name(of)));
    throw Fault(
        fmt::format("a value of type {} has no `{}` that could be called", type_name(of), name));
}

}  // namespace

Value Evaluator::call(const Value& callee, Arguments arguments) {
    const Depth depth(*this);
    if (callee.is(Kind::kFunction)) return callee.as<Function>().run(*this, arguments);
    if (callee.is(Kind::kLoop)) {
        const auto bound = bind("loop()", arguments, {"iterable"}, 1);
        const auto recurse = callee.as<LoopState>().recurse;
        if (!recurse) throw Fault("`loop()` is called, and its `for` is not `recursive`");
        return recurse(*bound[0]);
    }
    const std::string name = callee.undefined_name();
    if (!name.empty()) throw Fault(fmt::format("'{}' is undefined, and called", name));
    throw Fault(fmt::format("a value of type {} is called", type_name(callee)));
}

Value Evaluator::filter(std::string_view name, const Value& input, Arguments arguments) {
    const FilterFunction run = find_filter(name);
    if (run == nullptr) throw Fault(fmt::format("there is no filter `{}`", name));
    return run(*this, input, arguments);
}

bool Evaluator::test(std::string_view name, const Value& input, Arguments arguments) {
    const TestFunction run = find_test(name);
    if (run == nullptr) throw Fault(fmt::format("there is no test `{}`", name));
    return run(*this, input, arguments);
}

Value Evaluator::new_namespace() {
    auto made = make_object<Namespace>(&meter(), 64);
    namespaces_.push_back(made);
    return Value::of(Kind::kNamespace, std::move(made));
}

Values Evaluator::all_values(const std::vector<ExpressionPtr>& parts, Scope* scope) {
    Values values;
    values.reserve(parts.size());
    for (const ExpressionPtr& part : parts) values.push_back(eval(*part, scope));
    return values;
}

Arguments Evaluator::eval_arguments(const CallArguments& given, Scope* scope) {
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
        if (!more.is(Kind::kDict)) throw Fault("`**` of a call needs a dict");
        for (const auto& [key, value] : more.dict().entries) {
            const std::string& name = required_text("`**` of a call", key);
            for (const auto& [other, held] : arguments.named)
                if (other == name) throw Fault(fmt::format("`{}` is given twice", name));
            arguments.named.emplace_back(name, value);
        }
    }
    return arguments;
}

Value Evaluator::eval_dict(const Expression& expression, Scope* scope) {
    std::vector<Entry> entries;
    for (size_t i = 0; i + 1 < expression.parts.size(); i += 2) {
        Value key = eval(*expression.parts[i], scope);
        put_entry(meter(), entries, std::move(key), eval(*expression.parts[i + 1], scope));
    }
    return new_dict(&meter(), std::move(entries));
}

bool Evaluator::holds(Comparison comparison, const Value& a, const Value& b) {
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

Value Evaluator::eval_compare(const Expression& expression, Scope* scope) {
    Value left = eval(*expression.parts[0], scope);
    for (size_t i = 0; i < expression.comparisons.size(); ++i) {
        Value right = eval(*expression.parts[i + 1], scope);
        if (!holds(expression.comparisons[i], left, right)) return Value::boolean(false);
        left = std::move(right);
    }
    return Value::boolean(true);
}

Value Evaluator::eval_concat(const Expression& expression, Scope* scope) {
    std::string text;
    for (const ExpressionPtr& part : expression.parts)
        append_str(meter(), text, eval(*part, scope));
    return new_text(&meter(), std::move(text));
}

Value Evaluator::eval_item(const Expression& expression, Scope* scope) {
    const Value of = eval(*expression.parts[0], scope);
    const Expression& index = *expression.parts[1];
    if (index.kind != Expression::Kind::kSlice) {
        const Value key = eval(index, scope);
        line_ = expression.line;
        return item_of(*this, of, key);
    }
    Value bounds[3] = {Value::none(), Value::none(), Value::none()};
    for (size_t i = 0; i < 3; ++i)
        if (index.parts[i] != nullptr) bounds[i] = eval(*index.parts[i], scope);
    if (of.is(Kind::kUndefined)) {
        const std::string name = of.undefined_name();
        throw Fault(name.empty() ? "a part of an undefined value is asked for"
                                 : fmt::format("'{}' is undefined", name));
    }
    return slice_of(meter(), of, bounds[0], bounds[1], bounds[2]);
}

Value Evaluator::eval_filters(const Expression& filters, const Value& text, Scope* scope) {
    struct Restores {
        Value& place;
        Value before;
        ~Restores() { place = std::move(before); }
    } const restores{filtered_, std::exchange(filtered_, text)};
    return eval(filters, scope);
}

Value Evaluator::eval_filter(const Expression& expression, Scope* scope) {
    const ExpressionPtr& input = expression.parts[0];
    const Value value = input != nullptr ? eval(*input, scope) : filtered_;
    Arguments arguments = eval_arguments(expression.arguments, scope);
    line_ = expression.line;
    return filter(expression.name.text, value, std::move(arguments));
}

Value Evaluator::eval_call(const Expression& expression, Scope* scope, const Value* caller) {
    const Expression& callee = *expression.parts[0];
    const auto arguments = [&] {
        Arguments given = eval_arguments(expression.arguments, scope);
        if (caller != nullptr) given.named.emplace_back("caller", *caller);
        line_ = expression.line;
        return given;
    };
    if (callee.kind == Expression::Kind::kAttribute) {
        const Value of = eval(*callee.parts[0], scope);
        line_ = callee.line;
        if (const Method* method = find_method(of, callee.name.text); method != nullptr)
            return method->run(*this, of, arguments());
        const Value function = attribute_of(*this, of, callee.name.text);
        if (function.is(Kind::kUndefined)) fail_method(of, callee.name.text);
        return call(function, arguments());
    }
    const Value function = eval(callee, scope);
    return call(function, arguments());
}

Value Evaluator::eval(const Expression& expression, Scope* scope) {
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
        case Of::kPositive:
            return kept_sign(part(0));
        case Of::kAnd: {
            Value left = part(0);
            return is_true(left) ? part(1) : left;
        }
        case Of::kOr: {
            Value left = part(0);
            return is_true(left) ? left : part(1);
        }
        case Of::kOperator: {
            const Value left = part(0);
            return apply_operator(meter(), expression.op, left, part(1));
        }
        case Of::kCompare:
            return eval_compare(expression, scope);
        case Of::kConcat:
            return eval_concat(expression, scope);
        case Of::kChoice:
            if (is_true(part(0))) return part(1);
            return expression.parts[2] != nullptr ? part(2) : Value();
        case Of::kFilter:
            return eval_filter(expression, scope);
        case Of::kTest: {
            const Value input = part(0);
            return Value::boolean(
                test(expression.name.text, input, eval_arguments(expression.arguments, scope)));
        }
        case Of::kCall:
            return eval_call(expression, scope);
        case Of::kAttribute: {
            const Value of = part(0);
            line_ = expression.line;
            return attribute_of(*this, of, expression.name.text);
        }
        case Of::kItem:
            return eval_item(expression, scope);
        case Of::kSlice:
            throw Fault("a slice stands between commas");
    }
    return {};
}

}  // namespace dslaunch::text::jinja
