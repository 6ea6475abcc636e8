#include "text/chat_template/run/interpreter.h"

#include "text/chat_template/objects/loop_state.h"
#include "text/chat_template/run/evaluator.h"
#include "text/chat_template/run/globals.h"
#include "text/chat_template/values/compare.h"
#include "text/chat_template/values/printing.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

namespace dslaunch::text::jinja {
namespace {

enum class Flow : uint8_t { kNext, kBreak, kContinue };

class Interpreter : public Evaluator {
  public:
    Interpreter(const Tree& tree, const Limits& limits, const std::tm& now)
        : Evaluator(limits, now), tree_(tree) {}

    Printed run(const std::vector<std::pair<std::string, Value>>& values) {
        const OpenScope root(scopes(), nullptr);
        root_ = root.get();
        root_->keep();
        for (size_t i = 0; i < tree_.names.size(); ++i) {
            const std::string& name = tree_.names[i];
            if (name == "loop") loop_name_ = int(i);
            if (name == "caller") caller_name_ = int(i);
            if (name == "varargs") positional_name_ = int(i);
            if (name == "kwargs") named_name_ = int(i);
            const auto given = std::find_if(values.begin(), values.end(),
                                            [&](const auto& pair) { return pair.first == name; });
            if (given != values.end()) {
                root_->set(int(i), given->second);
                if (name == "messages" && given->second.is(Kind::kList))
                    for (const Value& message : given->second.items())
                        if (message.is(Kind::kDict)) messages_.insert(&message.dict());
                continue;
            }
            if (name == "self") root_->set(int(i), own_blocks());
            for (const Global& global : global_functions())
                if (global.name == name)
                    root_->set(int(i), new_function(&meter(), name, 0, global.run));
        }
        try {
            static_cast<void>(body(tree_.body, root_));
        } catch (const Fault& fault) {
            throw RunFault(line(), fault.what());
        }
        return std::move(printed_);
    }

  private:
    // Collects what is printed while it lives.
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
        if (value.is(Kind::kText)) return print(std::string_view(value.text()));
        append_str(meter(), *out_, value);
        meter().check_output(out_->size());
    }

    void assign(const Target& target, Value value, Scope* scope) {
        switch (target.kind) {
            case Target::Kind::kName:
                return scope->set(target.name.number, std::move(value));
            case Target::Kind::kField: {
                const Value* fields = scope->find(target.name.number);
                if (fields == nullptr || !fields->is(Kind::kNamespace)) {
                    throw Fault(fmt::format("`{}` is no namespace, so `{}.{}` cannot be set",
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
                run_for(statement, scope, eval(*statement.value, scope), 0);
                return Flow::kNext;
            case Of::kSet: {
                Value value = eval(*statement.value, scope);
                // The message of a loop over numbers.
                if (turn_ == nullptr) turn_ = message_in(value);
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
            case Of::kBlock: {
                const OpenScope inner(scopes(), statement.is_marked ? scope : root_);
                return body(statement.body, inner.get());
            }
            case Of::kGeneration:
                return run_generation(statement, scope);
            case Of::kScope: {
                const OpenScope inner(scopes(), scope);
                return body(statement.body, inner.get());
            }
            case Of::kBreak:
                return Flow::kBreak;
            case Of::kContinue:
                return Flow::kContinue;
            case Of::kRefused:
                break;
        }
        throw Fault(fmt::format("`{}` asks for another template: a chat template stands alone",
                                statement.text));
    }

    Flow run_if(const Statement& statement, Scope* scope) {
        if (is_true(eval(*statement.value, scope))) return body(statement.body, scope);
        for (const Statement& branch : statement.branches)
            if (is_true(eval(*branch.value, scope))) return body(branch.body, scope);
        return body(statement.otherwise, scope);
    }

    // VALUE as one of `messages`; nullptr: it is none.
    [[nodiscard]] const void* message_in(const Value& value) const {
        return value.is(Kind::kDict) && messages_.contains(&value.dict()) ? &value.dict() : nullptr;
    }

    // The elements of ITERABLE for which the loop's `if` holds.
    Value chosen_elements(const Statement& statement, Scope* scope, const Value& iterable) {
        if (statement.test == nullptr) return iterable;
        auto cursor = std::make_shared<Cursor>(meter(), iterable);
        const int depth = iterable.depth();
        return new_iterator(&meter(), depth, [this, cursor, &statement, scope](Value& item) {
            while (cursor->next(item)) {
                const OpenScope inner(scopes(), scope);
                assign(statement.target, item, inner.get());
                if (is_true(eval(*statement.test, inner.get()))) return true;
            }
            return false;
        });
    }

    void run_for(const Statement& statement, Scope* scope, const Value& iterable, int depth0) {
        const Value self = Value::of(Kind::kLoop, make_object<LoopState>(&meter(), 0));
        LoopState& loop = self.as<LoopState>();
        struct Ends {
            LoopState& loop;
            ~Ends() { loop.end(); }
        } const ends{loop};
        loop.begin(*this, chosen_elements(statement, scope, iterable), depth0);
        if (statement.is_marked) {
            loop.recurse = [this, &statement, scope, depth0](const Value& inner) {
                const Depth level(*this);
                Capture capture(*this);
                run_for(statement, scope, inner, depth0 + 1);
                return capture.take();
            };
        }
        // Jinja2's mark for "nothing ran", which a body that is left early does not clear.
        bool none_ran = true;
        {
            const OpenScope inner(scopes(), scope);
            for (Value item; loop.advance(item);) {
                meter().step();
                inner.get()->variables.clear();
                if (loop_name_ >= 0) inner.get()->set(loop_name_, self);
                const void* outer_turn = std::exchange(turn_, message_in(item));
                const size_t begin = out_->size();
                assign(statement.target, std::move(item), inner.get());
                const Flow flow = body(statement.body, inner.get());
                if (turn_ != nullptr && out_ == &printed_.text && out_->size() > begin)
                    printed_.turns.push_back({turn_, begin, out_->size()});
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
        if (!is_placed) printed_.has_lost_generation = true;
        const size_t begin = out_->size();
        const OpenScope inner(scopes(), scope);
        static_cast<void>(body(statement.body, inner.get()));
        if (is_placed) printed_.generated.emplace_back(begin, out_->size());
        return Flow::kNext;
    }

    Value macro(const Statement& statement, Scope* scope) {
        scope->keep();
        const Signature& signature = statement.signature;
        Value made = new_function(&meter(), signature.name, 0,
                                  [this, &statement, scope](Runtime& /*own*/, Arguments& given) {
                                      return call_macro(statement, scope, given);
                                  });
        Values names;
        for (const Parameter& parameter : signature.parameters)
            names.push_back(new_text(&meter(), parameter.name.text));
        made.as<Function>().attributes = {
            {"arguments", new_tuple(&meter(), std::move(names))},
            {"catch_kwargs", Value::boolean(signature.takes_more_named)},
            {"catch_varargs", Value::boolean(signature.takes_more_positional)},
            {"caller", Value::boolean(signature.takes_caller)},
        };
        return made;
    }

    // The value of `self`: the template's blocks, each of which it renders.
    Value own_blocks() {
        Value made = new_function(&meter(), "self", 0, [](Runtime& /*own*/, Arguments&) -> Value {
            throw Fault("`self` is called: its blocks are, as `self.title()`");
        });
        add_blocks(tree_.body, made.as<Function>());
        return made;
    }
    void add_blocks(const Body& statements, Function& own) {
        for (const Statement& statement : statements) {
            if (statement.kind == Statement::Kind::kBlock)
                own.attributes.emplace_back(statement.text, block(statement));
            for (const Body* inner : {&statement.body, &statement.branches, &statement.otherwise})
                add_blocks(*inner, own);
        }
    }
    Value block(const Statement& statement) {
        return new_function(&meter(), statement.text, 0,
                            [this, &statement](Runtime& /*own*/, Arguments& given) {
                                static_cast<void>(bind("a block", given, {}, 0));
                                const OpenScope inner(scopes(), root_);
                                Capture capture(*this);
                                static_cast<void>(body(statement.body, inner.get()));
                                return capture.take();
                            });
    }

    // Takes the argument NAME out of those with names.
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
        rest_of_arguments(signature, arguments, is_used, scope);
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

    void rest_of_arguments(const Signature& signature, const Arguments& arguments,
                           const std::vector<bool>& is_used, Scope* scope) {
        std::vector<Entry> rest;
        for (size_t i = 0; i < arguments.named.size(); ++i) {
            if (is_used[i]) continue;
            const auto& [name, value] = arguments.named[i];
            if (!signature.takes_more_named) {
                throw Fault(
                    fmt::format("the macro `{}` has no parameter `{}`", signature.name, name));
            }
            put_entry(meter(), rest, new_text(&meter(), name), value);
        }
        if (signature.takes_more_named) scope->set(named_name_, new_dict(&meter(), rest));
        const size_t taken = signature.parameters.size();
        const size_t count = arguments.positional.size();
        if (signature.takes_more_positional) {
            Values more;
            if (count > taken)
                more.assign(arguments.positional.begin() + long(taken), arguments.positional.end());
            scope->set(positional_name_, new_tuple(&meter(), std::move(more)));
        } else if (count > taken) {
            throw Fault(fmt::format("the macro `{}` takes {} arguments at most, and has {}",
                                    signature.name, taken, count));
        }
    }

    const Tree& tree_;
    Printed printed_;
    std::unordered_set<const void*> messages_;  // the dicts in the variable of that name
    const void* turn_ = nullptr;                // of them that of the innermost loop
    std::string* out_ = &printed_.text;
    int loop_name_ = -1;
    int caller_name_ = -1;
    int positional_name_ = -1;
    int named_name_ = -1;
    Scope* root_ = nullptr;
};

}  // namespace

Printed run_template(const Tree& tree, const std::vector<std::pair<std::string, Value>>& values,
                     const Limits& limits, const std::tm& now) {
    return Interpreter(tree, limits, now).run(values);
}

}  // namespace dslaunch::text::jinja
