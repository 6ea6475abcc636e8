// A template as a tree: what the parsers make and the interpreter runs. Value types without
// behaviour; a tree never changes after it is parsed, so several threads may run it.
#pragma once

#include "text/chat_template/values/arithmetic.h"
#include "text/chat_template/values/value.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace dslaunch::text::jinja {

struct Expression;
struct Statement;
using ExpressionPtr = std::unique_ptr<Expression>;
using Body = std::vector<Statement>;

// A variable's name and its number, the same for equal names of a template.
struct Name {
    std::string text;
    int number = -1;
};

struct CallArguments {
    std::vector<ExpressionPtr> positional;
    std::vector<std::pair<std::string, ExpressionPtr>> named;
    ExpressionPtr more_positional;  // *expression
    ExpressionPtr more_named;       // **expression
};

enum class Comparison : uint8_t {
    kEqual,
    kNotEqual,
    kLess,
    kLessEqual,
    kGreater,
    kGreaterEqual,
    kIn,
    kNotIn,
};

struct Expression {
    enum class Kind : uint8_t {
        kConstant,
        kName,
        kList,
        kTuple,
        kDict,  // parts: key, value, key, …
        kNot,
        kNegative,
        kPositive,
        kAnd,
        kOr,
        kOperator,   // parts: left, right
        kCompare,    // parts: first, and one more for each comparison
        kConcat,     // ~
        kChoice,     // parts: condition, value, value otherwise or nullptr
        kFilter,     // parts: input or nullptr for a filter block; name; arguments
        kTest,       // parts: input; name; arguments
        kCall,       // parts: what is called; arguments
        kAttribute,  // parts: of what; name
        kItem,       // parts: of what, index
        kSlice,      // an index; parts: start, stop, step, each may be nullptr
    };
    Kind kind = Kind::kConstant;
    Operator op = Operator::kAdd;
    int line = 1;
    int depth = 1;  // levels of expressions
    Value constant;
    Name name;
    std::vector<Comparison> comparisons;
    std::vector<ExpressionPtr> parts;
    CallArguments arguments;
};

// Where `set`, `for` and `with` put a value.
struct Target {
    enum class Kind : uint8_t { kName, kField, kTuple };
    Kind kind = Kind::kName;
    int line = 1;
    Name name;
    std::string field;  // kField: name.field
    std::vector<Target> parts;
};

struct Parameter {
    Name name;
    ExpressionPtr fallback;
};

// What a macro, a `call` block's body and their like have.
struct Signature {
    std::string name;
    std::vector<Parameter> parameters;
    bool takes_more_positional = false;  // its body says `varargs`
    bool takes_more_named = false;       // `kwargs`
    bool takes_caller = false;           // `caller`, without a parameter of that name
};

struct Statement {
    enum class Kind : uint8_t {
        kData,         // text
        kPrint,        // value
        kIf,           // value, body, branches, otherwise
        kFor,          // target, value, test, body, otherwise
        kSet,          // target, value
        kSetBlock,     // target, body, value (a filter) or nullptr
        kMacro,        // signature, target, body
        kCallBlock,    // value (a call), signature, body
        kFilterBlock,  // value, body
        kWith,         // assignments, body
        kBlock,        // body, is_marked: sees the variables of loops around it
        kGeneration,   // body
        kScope,        // body
        kBreak,
        kContinue,
        kRefused,  // text: the tag's name; it asks for another template
    };
    Kind kind = Kind::kData;
    int line = 1;
    bool is_marked = false;  // a loop is `recursive`, a block is `scoped`
    std::string text;
    ExpressionPtr value;
    ExpressionPtr test;
    Target target;
    Signature signature;
    std::vector<std::pair<Target, ExpressionPtr>> assignments;
    Body body;
    Body branches;  // of `elif`, each with value and body
    Body otherwise;
};

struct Tree {
    Body body;
    std::vector<std::string> names;  // by their number
    bool has_generation = false;     // a `{% generation %}` stands in it
};

}  // namespace dslaunch::text::jinja
