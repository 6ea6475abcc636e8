#include "storage/pickle/pickle.h"

#include <algorithm>
#include <bit>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "base/text_bytes.h"
#include "storage/pickle/pickle_names.h"
#include "storage/pickle/script_calls.h"

namespace dslaunch::storage {

using Kind = PickleValue::Kind;

namespace {

bool is_storage_class(const PickleValue& value) {
    return value.kind == Kind::kGlobal && value.text.ends_with("Storage");
}

constexpr int64_t kTextBytesMax = int64_t{16} << 20;

struct Limits {
    int64_t depth_max;
    int64_t reached_max;
};
constexpr Limits limits_of(PickleWords words) {
    return words == PickleWords::kScript ? Limits{kScriptDepthMax, kPickleValuesMax}
                                         : Limits{kPickleDepthMax, 16 * kPickleValuesMax};
}

}  // namespace

class Unpickler {
  public:
    Unpickler(const std::string& path, std::span<const std::byte> bytes, PickleWords words,
              Pickle& out)
        : path_(path), bytes_(bytes), words_(words), limits_(limits_of(words)), out_(out) {}

    void run() {
        if (std::ssize(bytes_) > kPickleBytesMax)
            bad("it has {} bytes, more than any checkpoint needs", bytes_.size());
        bool stopped = false;
        while (!stopped) {
            op_at_ = at_;
            const auto op = static_cast<uint8_t>(number(1));
            if (op_at_ == 0 && op != 0x80)
                bad("it does not begin like a pickle of protocol 2 or later");
            stopped = op == '.';
            if (!stopped && !step_value(op) && !step_collection(op) && !step_object_or_memo(op))
                bad("opcode 0x{:02x} is not supported", op);
        }
        PickleValue* root = pop();
        if (!stack_.empty() || !marks_.empty()) bad("it ends, but values are left over");
        check_shape(root);
        out_.root_ = root;
    }

  private:
    template <typename... Args>
    [[noreturn]] void bad(fmt::format_string<Args...> format, Args&&... args) const {
        fail(ExitCode::kInput, "{}: pickle, offset {}: {}", path_, op_at_,
             printable(fmt::format(format, std::forward<Args>(args)...)));
    }

    // --- bytes

    std::span<const std::byte> take(uint64_t count) {
        if (count > bytes_.size() - at_)
            bad("{} bytes are needed, but only {} are left", count, bytes_.size() - at_);
        const auto part = bytes_.subspan(at_, count);
        at_ += count;
        return part;
    }
    uint64_t number(size_t width) {
        uint64_t value = 0;
        const auto part = take(width);
        for (size_t i = 0; i < width; ++i) value |= std::to_integer<uint64_t>(part[i]) << (8 * i);
        return value;
    }
    std::string text(uint64_t count) {
        if (count > static_cast<uint64_t>(kTextBytesMax))
            bad("a string of {} bytes is too long", count);
        return std::string(text_in(take(count)));
    }
    std::string line() {
        const auto rest = bytes_.subspan(at_);
        const auto end = std::ranges::find(rest, std::byte{'\n'});
        if (end == rest.end()) bad("a name has no end");
        std::string found = text(static_cast<uint64_t>(end - rest.begin()));
        at_ += 1;
        return found;
    }
    // Reads an integer of COUNT bytes in two's complement.
    int64_t long_integer(uint64_t count) {
        if (count > 8) bad("an integer of {} bytes is too long", count);
        if (count == 0) return 0;
        const uint64_t value = number(count);
        const auto shift = static_cast<int>(64 - 8 * count);
        return static_cast<int64_t>(value << shift) >> shift;
    }

    // --- stack

    PickleValue* make(PickleValue value) {
        if (std::ssize(out_.values_) >= kPickleValuesMax)
            bad("it has more than {} values", kPickleValuesMax);
        return &out_.values_.emplace_back(std::move(value));
    }
    void push(PickleValue* value) { stack_.push_back(value); }
    void push(Kind kind, int64_t integer) { push(make({.kind = kind, .integer = integer})); }
    void push(Kind kind, std::string text) { push(make({.kind = kind, .text = std::move(text)})); }
    void push(Kind kind, std::vector<const PickleValue*> items) {
        push(make({.kind = kind, .items = std::move(items)}));
    }
    size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
    PickleValue* top() {
        if (stack_.size() <= floor()) bad("the stack is empty");
        return stack_.back();
    }
    PickleValue* pop() {
        PickleValue* value = top();
        stack_.pop_back();
        return value;
    }
    std::vector<const PickleValue*> pop(size_t count) {
        if (stack_.size() - floor() < count) bad("the stack is empty");
        std::vector<const PickleValue*> items(stack_.end() - static_cast<ptrdiff_t>(count),
                                              stack_.end());
        stack_.resize(stack_.size() - count);
        return items;
    }
    std::vector<const PickleValue*> pop_mark() {
        if (marks_.empty()) bad("no mark is set");
        auto items = pop(stack_.size() - marks_.back());
        marks_.pop_back();
        return items;
    }

    void remember(uint64_t index) {
        if (index >= static_cast<uint64_t>(kPickleValuesMax)) bad("memo entry {}", index);
        if (index >= memo_.size()) memo_.resize(index + 1);
        memo_[index] = top();
    }
    void recall(uint64_t index) {
        if (index >= memo_.size() || memo_[index] == nullptr)
            bad("memo entry {} does not exist", index);
        push(memo_[index]);
    }

    // --- opcodes

    bool step_value(uint8_t op) {
        switch (op) {
            case 0x80:
                protocol(number(1));
                return true;
            case 0x95:  // FRAME
                if (const uint64_t count = number(8); count > bytes_.size() - at_)
                    bad("a frame needs {} bytes, but only {} are left", count, bytes_.size() - at_);
                return true;
            case 'N':
                push(Kind::kNone, int64_t{0});
                return true;
            case 0x88:
                push(Kind::kBool, int64_t{1});
                return true;
            case 0x89:
                push(Kind::kBool, int64_t{0});
                return true;
            case 'J':
                push(Kind::kInteger, long_integer(4));
                return true;
            case 'K':
                push(Kind::kInteger, static_cast<int64_t>(number(1)));
                return true;
            case 'M':
                push(Kind::kInteger, static_cast<int64_t>(number(2)));
                return true;
            case 0x8a:
                push(Kind::kInteger, long_integer(number(1)));
                return true;
            case 0x8b:
                push(Kind::kInteger, long_integer(number(4)));
                return true;
            case 'G':
                push(make({.kind = Kind::kReal, .real = real()}));
                return true;
            case 'X':
                push(Kind::kText, text(number(4)));
                return true;
            case 0x8c:
                push(Kind::kText, text(number(1)));
                return true;
            case 0x8d:
                push(Kind::kText, text(number(8)));
                return true;
            case 'B':
                push(Kind::kBytes, text(number(4)));
                return true;
            case 'C':
                push(Kind::kBytes, text(number(1)));
                return true;
            case 0x8e:
                push(Kind::kBytes, text(number(8)));
                return true;
            default:
                return false;
        }
    }

    bool step_collection(uint8_t op) {
        switch (op) {
            case '(':
                marks_.push_back(stack_.size());
                return true;
            case '0':
                static_cast<void>(pop());
                return true;
            case '1':
                static_cast<void>(pop_mark());
                return true;
            case '2':
                push(top());
                return true;
            case ']':
            case 0x8f:  // EMPTY_SET
                push(Kind::kList, pop(0));
                return true;
            case ')':
                push(Kind::kTuple, pop(0));
                return true;
            case '}':
                push(Kind::kDict, pop(0));
                return true;
            case 'l':
            case 0x91:
                push(Kind::kList, pop_mark());
                return true;  // LIST, FROZENSET
            case 't':
                push(Kind::kTuple, pop_mark());
                return true;
            case 0x85:
                push(Kind::kTuple, pop(1));
                return true;
            case 0x86:
                push(Kind::kTuple, pop(2));
                return true;
            case 0x87:
                push(Kind::kTuple, pop(3));
                return true;
            case 'a':
                append(Kind::kList, pop(1));
                return true;
            case 'e':
            case 0x90:
                append(Kind::kList, pop_mark());
                return true;  // APPENDS, ADDITEMS
            case 's':
                append(Kind::kDict, pop(2));
                return true;
            case 'u':
                append(Kind::kDict, pop_mark());
                return true;
            default:
                return false;
        }
    }

    bool step_object_or_memo(uint8_t op) {
        switch (op) {
            case 'c': {
                const std::string module = line();
                global(fmt::format("{} {}", module, line()));
                return true;
            }
            case 0x93: {  // STACK_GLOBAL
                const auto names = pop(2);
                if (names[0]->kind != Kind::kText || names[1]->kind != Kind::kText)
                    bad("the name of a global is not a string");
                global(fmt::format("{} {}", names[0]->text, names[1]->text));
                return true;
            }
            case 'R':
                reduce();
                return true;
            case 0x81:
                make_object();
                return true;
            case 'b':
                words_ == PickleWords::kScript ? call() : take_state();
                return true;
            case 'Q':
                storage(*pop());
                return true;
            case 'q':
                remember(number(1));
                return true;
            case 'r':
                remember(number(4));
                return true;
            case 0x94:
                remember(memo_.size());
                return true;
            case 'h':
                recall(number(1));
                return true;
            case 'j':
                recall(number(4));
                return true;
            default:
                return false;
        }
    }

    void protocol(uint64_t version) const {
        if (op_at_ != 0 || version < 2 || version > 5) bad("protocol {}", version);
    }
    double real() {
        uint64_t bits = 0;
        for (const std::byte byte : take(8)) bits = bits << 8 | std::to_integer<uint64_t>(byte);
        return std::bit_cast<double>(bits);
    }
    void append(Kind kind, std::vector<const PickleValue*> items) {
        PickleValue* to = top();
        if (to->kind != kind) bad("items are added to a value that cannot have any");
        if (kind == Kind::kDict) check_keys(items);
        to->items.insert(to->items.end(), items.begin(), items.end());
    }
    void check_keys(const std::vector<const PickleValue*>& items) const {
        if (items.size() % 2 != 0) bad("a key has no value");
        for (size_t i = 0; i < items.size(); i += 2)
            if (items[i]->kind > Kind::kBytes && items[i]->kind != Kind::kTuple)
                bad("a value of this type cannot be a key");
    }

    void global(std::string name) {
        if (use_of(name, words_) == PickleUse::kNone)
            bad("the pickle refers to `{}`, which {} not need, so it was refused and not run", name,
                words_ == PickleWords::kScript ? "models do" : "checkpoints of tensors do");
        push(Kind::kGlobal, std::move(name));
    }

    // Handles the class of an object. LibTorch creates the object only when its state follows, so
    // nothing happens here for torch.jit.save.
    void make_object() {
        if (words_ == PickleWords::kCheckpoint) return reduce();
        const PickleValue& arguments = *pop();
        if (arguments.kind != Kind::kTuple || !arguments.items.empty() ||
            top()->kind != Kind::kGlobal)
            bad("an object is created with arguments");
    }

    void reduce() {
        if (words_ == PickleWords::kScript) return call();
        const auto both = pop(2);
        build(*both[0], *both[1]);
    }

    // Executes REDUCE or BUILD, which are the same for LibTorch.
    void call() {
        PickleValue* const argument = pop();
        ScriptCall made = script_call(*pop(), *argument);
        if (!made.fault.empty()) bad("{}", made.fault);
        // Some calls only give a list its type. Their result is the same list and not a copy,
        // because items may be added to the list later.
        push(made.same != nullptr ? const_cast<PickleValue*>(made.same)
                                  : make(std::move(made.value)));
    }

    void build(const PickleValue& what, const PickleValue& arguments) {
        const PickleUse use =
            what.kind == Kind::kGlobal ? use_of(what.text, words_) : PickleUse::kNone;
        if (arguments.kind != Kind::kTuple) bad("the arguments of a call are not a tuple");
        const auto& items = arguments.items;
        const auto first_is = [&](Kind kind) { return !items.empty() && items[0]->kind == kind; };
        if (use == PickleUse::kDict && (items.empty() || first_is(Kind::kGlobal)))
            return push(Kind::kDict, std::vector<const PickleValue*>{});
        if (use == PickleUse::kList && (items.empty() || first_is(Kind::kList)))
            return push(Kind::kList, items.empty() ? items : copied(items[0]->items));
        if (use == PickleUse::kSize && first_is(Kind::kTuple))
            return push(Kind::kTuple, copied(items[0]->items));
        if (use == PickleUse::kTensor && items.size() >= 4 && first_is(Kind::kStorage) &&
            items[1]->kind == Kind::kInteger && items[2]->kind == Kind::kTuple &&
            items[3]->kind == Kind::kTuple)
            return push(Kind::kTensor, std::vector(items.begin(), items.begin() + 4));
        if (use == PickleUse::kParameter && first_is(Kind::kTensor))
            return push(Kind::kTensor, items[0]->items);
        // This recursion is at most one level deep: is_rebuild() accepts only kTensor and
        // kParameter, and these do not call build() again.
        if (use == PickleUse::kTyped && items.size() == 4 && first_is(Kind::kGlobal) &&
            is_rebuild(items[0]->text))
            return build(*items[0], *items[2]);
        if (use == PickleUse::kRecord)
            return push(make({.kind = Kind::kRecord, .text = what.text, .items = {&arguments}}));
        bad("a call of {} with these arguments is not allowed",
            what.kind == Kind::kGlobal ? fmt::format("`{}`", what.text)
                                       : "a value that is not a class");
    }

    bool is_rebuild(std::string_view name) const {
        const PickleUse use = use_of(name, words_);
        return use == PickleUse::kTensor || use == PickleUse::kParameter;
    }

    // Counts copied items, because a few bytes of a pickle can demand a large copy.
    const std::vector<const PickleValue*>& copied(const std::vector<const PickleValue*>& items) {
        copied_count_ += std::ssize(items);
        if (copied_count_ > kPickleValuesMax) bad("it has more than {} values", kPickleValuesMax);
        return items;
    }

    // Keeps the attributes of records and drops the attributes of dicts (module.state_dict()'s
    // _metadata).
    void take_state() {
        const PickleValue* state = pop();
        PickleValue* to = top();
        if (to->kind == Kind::kRecord)
            to->items.push_back(state);
        else if (to->kind != Kind::kDict || state->kind != Kind::kDict)
            bad("attributes are set on a value that cannot have any");
    }

    void storage(const PickleValue& id) {
        const auto& items = id.items;
        if (id.kind != Kind::kTuple || items.size() != 5 || items[0]->kind != Kind::kText ||
            items[0]->text != "storage" || !is_storage_class(*items[1]) ||
            items[2]->kind != Kind::kText || items[4]->kind != Kind::kInteger)
            bad("a persistent id does not describe the storage of a tensor");
        push(make({.kind = Kind::kStorage,
                   .text = items[1]->text,
                   .items = {items[2], items[3], items[4]}}));
    }

    // Refuses cycles, values nested deeper than the limit, and more values than the limit. A shared
    // value is visited only once, but counts each time that it is reached.
    void check_shape(const PickleValue* root) const {
        struct Open {
            const PickleValue* value;
            size_t next = 0;
            int64_t height = 1;
            int64_t reached_count = 1;
        };
        struct Done {
            int64_t height = 0;  // 0 while the value is being visited
            int64_t reached_count = 0;
        };
        std::vector<Open> open = {{root}};
        std::map<const PickleValue*, Done> done;
        done[root] = {};
        while (!open.empty()) {
            Open& here = open.back();
            if (std::max(std::ssize(open), here.height) > limits_.depth_max)
                bad("values are nested more than {} deep", limits_.depth_max);
            if (here.reached_count > limits_.reached_max)
                bad("shared values expand to more than {} values", limits_.reached_max);
            if (here.next < here.value->items.size()) {
                const PickleValue* child = here.value->items[here.next++];
                const auto [found, is_new] = done.try_emplace(child);
                if (is_new) {
                    open.push_back({child});
                } else if (found->second.height == 0) {
                    bad("a value contains itself");
                } else {
                    here.height = std::max(here.height, found->second.height + 1);
                    here.reached_count += found->second.reached_count;
                }
                continue;
            }
            const Done made{here.height, here.reached_count};
            done[here.value] = made;
            open.pop_back();
            if (open.empty()) continue;
            open.back().height = std::max(open.back().height, made.height + 1);
            open.back().reached_count += made.reached_count;
        }
    }

    const std::string& path_;
    std::span<const std::byte> bytes_;
    const PickleWords words_;
    const Limits limits_;
    Pickle& out_;
    size_t at_ = 0;
    size_t op_at_ = 0;  // the offset of the current opcode
    int64_t copied_count_ = 0;
    std::vector<PickleValue*> stack_;
    std::vector<size_t> marks_;
    std::vector<PickleValue*> memo_;
};

Pickle::Pickle(const std::string& path, std::span<const std::byte> bytes, PickleWords words) {
    Unpickler(path, bytes, words, *this).run();
}

}  // namespace dslaunch::storage
