#include "text/chat_template/run/interpreter.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "text/chat_template/functions/functions.h"
#include "text/chat_template/run/expression_evaluator.h"
#include "text/chat_template/values/compare.h"
#include "text/chat_template/values/printing.h"

namespace dslaunch::text::jinja {
namespace {

enum class Flow : uint8_t { kNext, kBreak, kContinue };

class Interpreter : public ExpressionEvaluator {
  public:
    Interpreter(const Tree& tree, const Limits& limits, const std::tm& now)
        : ExpressionEvaluator(limits, now), tree_(tree) {}

    RenderedChat run(const std::vector<std::pair<std::string, Value>>& values) {
        const OpenScope root(scopes(), nullptr);
        Scope* const scope = root.get();
        scope->keep();
        for (size_t i = 0; i < tree_.names.size(); ++i) {
            const std::string& name = tree_.names[i];
            if (name == "loop") loop_name_ = int(i);
            if (name == "caller") caller_name_ = int(i);
            const auto given = std::find_if(values.begin(), values.end(),
                                            [&](const auto& pair) { return pair.first == name; });
            if (given != values.end()) {
                scope->set(int(i), given->second);
                if (name == "messages" && given->second.is(ValueKind::kList))
                    for (const Value& message : given->second.items())
                        if (message.is(ValueKind::kDict))
                            messages_.emplace(&message.dict(),
                                              &message - given->second.items().data());
                continue;
            }
            // In Jinja2, `self` contains the blocks of the template. Blocks are not supported, so
            // here `self` is a function that throws.
            if (name == "self")
                scope->set(int(i),
                           new_function(&meter(), name, 0, [](Runtime&, Arguments&) -> Value {
                               throw Fault(
                                   "`self` is not supported, because {% block %} is not supported");
                           }));
            if (const Native* global = find_global(name); global != nullptr)
                scope->set(int(i), new_function(&meter(), name, 0,
                                                [global](Runtime& runtime, Arguments& arguments) {
                                                    return call_native(runtime, *global, Value(),
                                                                       arguments);
                                                }));
        }
        try {
            static_cast<void>(body(tree_.body, scope));
        } catch (const Fault& fault) {
            throw LineFault(line(), fault.what());
        }
        return std::move(printed_);
    }

  private:
    // Collects all text that is printed during the life of this object.
    class Capture {
      public:
        explicit Capture(Interpreter& own) : own_(own), before_(std::exchange(own.out_, &text_)) {}
        ~Capture() { own_.out_ = before_; }
        Capture(const Capture&) = delete;
        Capture& operator=(const Capture&) = delete;
        [[nodiscard]] Value take() { return new_text(&own_.meter(), std::move(text_)); }

      private:
        Interpreter& own_;
        std::string text_;
        std::string* before_;
    };

    void print(std::string_view text) {
        meter().step_text(text.size());
        *out_ += text;
        meter().check_bytes(out_->size());
        meter().check_output(out_->size());
    }

    void print(const Value& value) {
        if (value.is(ValueKind::kText)) return print(std::string_view(value.text()));
        append_str(meter(), *out_, value);
        meter().check_output(out_->size());
    }

    void assign(const Target& target, Value value, Scope* scope) {
        switch (target.kind) {
            case Target::Kind::kName:
                return scope->set(target.name.number, std::move(value));
            case Target::Kind::kField: {
                const Value* fields = scope->find(target.name.number);
                if (fields == nullptr || !fields->is(ValueKind::kNamespace)) {
                    throw Fault(fmt::format("`{}` is not a namespace, so `{}.{}` cannot be set",
                                            target.name.text, target.name.text, target.field));
                }
                const Value keeps = *fields;
                return set_field(keeps.as<Namespace>(), target.field, std::move(value));
            }
            case Target::Kind::kTuple:
                break;
        }
        Values values = all_of(meter(), value);
        if (values.size() != target.parts.size()) {
            throw Fault(fmt::format("{} values are assigned to {} names", values.size(),
                                    target.parts.size()));
        }
        for (size_t i = 0; i < values.size(); ++i)
            assign(target.parts[i], std::move(values[i]), scope);
    }

    Flow body(const Body& statements, Scope* scope) {
        for (const Statement& statement : statements) {
            if (statement.kind == Statement::Kind::kData) {
                print(std::string_view(statement.text));
                continue;
            }
            const Flow flow = execute(statement, scope);
            if (flow != Flow::kNext) return flow;
        }
        return Flow::kNext;
    }

    Flow execute(const Statement& statement, Scope* scope) {
        using Of = Statement::Kind;
        const Depth depth(*this);
        meter().step();
        at_line(statement.line);
        switch (statement.kind) {
            case Of::kData:
                print(std::string_view(statement.text));
                return Flow::kNext;
            case Of::kPrint:
                print(eval(*statement.value, scope));
                return Flow::kNext;
            case Of::kIf:
                return run_if(statement, scope);
            case Of::kFor:
                run_for(statement, scope);
                return Flow::kNext;
            case Of::kSet: {
                Value value = eval(*statement.value, scope);
                // A loop over indices does not pass the message itself; its body assigns the
                // message with `set`.
                if (!turn_) turn_ = message_in(value);
                assign(statement.target, std::move(value), scope);
                return Flow::kNext;
            }
            case Of::kSetBlock:
                return run_set_block(statement, scope);
            case Of::kMacro:
                scope->set(statement.target.name.number, macro(statement, scope));
                return Flow::kNext;
            case Of::kCallBlock: {
                const Value caller = macro(statement, scope);
                print(eval_call(*statement.value, scope, &caller));
                return Flow::kNext;
            }
            case Of::kFilterBlock:
                return run_filter_block(statement, scope);
            case Of::kWith:
                return run_with(statement, scope);
            case Of::kGeneration:
                return run_generation(statement, scope);
            case Of::kBreak:
                return Flow::kBreak;
            case Of::kContinue:
                return Flow::kContinue;
            case Of::kRefused:
                break;
        }
        throw Fault(fmt::format("`{}` would load another template, which a chat template cannot do",
                                statement.text));
    }

    Flow run_if(const Statement& statement, Scope* scope) {
        if (is_true(eval(*statement.value, scope))) return body(statement.body, scope);
        for (const Statement& branch : statement.branches)
            if (is_true(eval(*branch.value, scope))) return body(branch.body, scope);
        return body(statement.otherwise, scope);
    }

    // Returns the index of VALUE in `messages`, or nothing if VALUE is no message.
    [[nodiscard]] std::optional<size_t> message_in(const Value& value) const {
        if (!value.is(ValueKind::kDict)) return std::nullopt;
        const auto found = messages_.find(&value.dict());
        return found == messages_.end() ? std::nullopt : std::optional(found->second);
    }

    // Returns a function that gives the next element of ITERABLE for which the loop's `if` holds at
    // the time of the call.
    std::function<bool(Value&)> chosen_elements(const Statement& statement, Scope* scope,
                                                const Value& iterable) {
        auto cursor = std::make_shared<Cursor>(meter(), iterable);
        return [this, cursor, &statement, scope](Value& item) {
            while (cursor->next(item)) {
                meter().step();
                if (statement.test == nullptr) return true;
                const OpenScope inner(scopes(), scope);
                assign(statement.target, item, inner.get());
                if (is_true(eval(*statement.test, inner.get()))) return true;
            }
            return false;
        };
    }

    void run_for(const Statement& statement, Scope* scope) {
        const Value iterable = eval(*statement.value, scope);
        const Value self = Value::of(ValueKind::kLoop, make_object<LoopState>(&meter(), 0));
        LoopState& loop = self.as<LoopState>();
        struct Ends {
            LoopState& loop;
            ~Ends() { loop.end(); }
        } const ends{loop};
        loop.next = chosen_elements(statement, scope, iterable);
        // True while the `else` body should run. Jinja2 clears this flag at the end of the first
        // iteration, so a body that is left early does not clear it.
        bool none_ran = true;
        {
            const OpenScope inner(scopes(), scope);
            for (Value item; loop.advance(item);) {
                meter().step();
                inner.get()->variables.clear();
                if (loop_name_ >= 0) inner.get()->set(loop_name_, self);
                const auto outer_turn = std::exchange(turn_, message_in(item));
                const size_t begin = out_->size();
                assign(statement.target, std::move(item), inner.get());
                const Flow flow = body(statement.body, inner.get());
                if (turn_ && out_ == &printed_.text && out_->size() > begin)
                    printed_.by_message.push_back({*turn_, {begin, out_->size()}});
                turn_ = outer_turn;
                if (flow == Flow::kBreak) break;
                if (flow == Flow::kNext) none_ran = false;
            }
        }
        if (none_ran && !statement.otherwise.empty()) {
            const OpenScope inner(scopes(), scope);
            static_cast<void>(body(statement.otherwise, inner.get()));
        }
    }

    Flow run_set_block(const Statement& statement, Scope* scope) {
        Capture capture(*this);
        {
            const OpenScope inner(scopes(), scope);
            const Flow flow = body(statement.body, inner.get());
            if (flow != Flow::kNext) return flow;
        }
        Value value = capture.take();
        if (statement.value != nullptr) value = eval_filters(*statement.value, value, scope);
        assign(statement.target, std::move(value), scope);
        return Flow::kNext;
    }

    Flow run_filter_block(const Statement& statement, Scope* scope) {
        Value text;
        const OpenScope inner(scopes(), scope);
        {
            Capture capture(*this);
            const Flow flow = body(statement.body, inner.get());
            if (flow != Flow::kNext) return flow;
            text = capture.take();
        }
        print(eval_filters(*statement.value, text, inner.get()));
        return Flow::kNext;
    }

    Flow run_with(const Statement& statement, Scope* scope) {
        const OpenScope inner(scopes(), scope);
        for (const auto& [target, value] : statement.assignments)
            assign(target, eval(*value, scope), inner.get());
        return body(statement.body, inner.get());
    }

    Flow run_generation(const Statement& statement, Scope* scope) {
        const bool is_placed = out_ == &printed_.text;
        if (!is_placed) printed_.has_lost_mark = true;
        const size_t begin = out_->size();
        const OpenScope inner(scopes(), scope);
        static_cast<void>(body(statement.body, inner.get()));
        if (is_placed) printed_.generated.push_back({begin, out_->size()});
        return Flow::kNext;
    }

    Value macro(const Statement& statement, Scope* scope) {
        scope->keep();
        return new_function(&meter(), statement.signature.name, 0,
                            [this, &statement, scope](Runtime& /*own*/, Arguments& given) {
                                return call_macro(statement, scope, given);
                            });
    }

    // Returns the named argument NAME and marks it as used, or returns nullptr if it is not given.
    static const Value* take_named(Arguments& arguments, std::vector<bool>& is_used,
                                   std::string_view name) {
        for (size_t i = 0; i < arguments.named.size(); ++i) {
            if (is_used[i] || arguments.named[i].first != name) continue;
            is_used[i] = true;
            return &arguments.named[i].second;
        }
        return nullptr;
    }

    Value call_macro(const Statement& statement, Scope* outer, Arguments& arguments) {
        const Signature& signature = statement.signature;
        const OpenScope inner(scopes(), outer);
        Scope* scope = inner.get();
        std::vector<bool> is_used(arguments.named.size(), false);
        const size_t by_place = std::min(arguments.positional.size(), signature.parameters.size());
        std::vector<const Value*> given(signature.parameters.size(), nullptr);
        for (size_t i = 0; i < given.size(); ++i) {
            given[i] = i < by_place
                           ? &arguments.positional[i]
                           : take_named(arguments, is_used, signature.parameters[i].name.text);
        }
        if (signature.takes_caller) {
            const Value* caller = take_named(arguments, is_used, "caller");
            scope->set(caller_name_, caller != nullptr ? *caller : Value());
        }
        for (size_t i = 0; i < is_used.size(); ++i)
            if (!is_used[i])
                throw Fault(fmt::format("the macro `{}` has no parameter `{}`", signature.name,
                                        arguments.named[i].first));
        if (arguments.positional.size() > given.size())
            throw Fault(fmt::format("the macro `{}` takes at most {} arguments, but {} are given",
                                    signature.name, given.size(), arguments.positional.size()));
        for (size_t i = 0; i < given.size(); ++i) {
            const Parameter& parameter = signature.parameters[i];
            if (given[i] != nullptr) {
                scope->set(parameter.name.number, *given[i]);
            } else if (parameter.fallback != nullptr) {
                scope->set(parameter.name.number, eval(*parameter.fallback, scope));
            } else {
                scope->set(parameter.name.number, Value::undefined(parameter.name.text));
            }
        }
        Capture capture(*this);
        static_cast<void>(body(statement.body, scope));
        return capture.take();
    }

    const Tree& tree_;
    RenderedChat printed_;
    // The index of each dict in the variable `messages`, and the index of the innermost loop's
    // current message.
    std::unordered_map<const void*, size_t> messages_;
    std::optional<size_t> turn_;
    std::string* out_ = &printed_.text;
    int loop_name_ = -1;
    int caller_name_ = -1;
};

}  // namespace

RenderedChat run_template(const Tree& tree,
                          const std::vector<std::pair<std::string, Value>>& values,
                          const Limits& limits, const std::tm& now) {
    return Interpreter(tree, limits, now).run(values);
}

}  // namespace dslaunch::text::jinja
