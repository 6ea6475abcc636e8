// libFuzzer entry: reads any bytes as the data.pkl of a TorchScript archive with five records. The
// bytes are refused with Error, or a copy of LibTorch's unpickler can run on them. That unpickler
// trusts every number. It must find the values that it needs on its stack, and each tensor that it
// makes must be inside its record. To check this, the first and the last element are read, and the
// record's memory is not longer than the record.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "fuzz/error_checks.h"
#include "storage/scripted/script_archive.h"

namespace {

using namespace dslaunch;
using namespace dslaunch::storage;

constexpr std::array<size_t, 5> kRecordBytes = {8192, 128, 1280, 40, 16};
constexpr std::string_view kNoConstants = "\x80\x02).";
constexpr size_t kConstantsBytes = 4;

struct Value {
    enum class Kind { kNone, kBool, kInteger, kReal, kText, kList, kTuple, kDict, kTensor, kOther };
    Kind kind = Kind::kNone;
    int64_t integer = 0;
    std::string text = {};
    std::vector<std::shared_ptr<Value>> items = {};
    // Only for kTensor.
    const std::byte* storage = nullptr;
    int64_t element_bytes = 0;
};
using Ref = std::shared_ptr<Value>;
using Kind = Value::Kind;

// A case in which LibTorch throws. This is not a fault.
struct Thrown {};

volatile uint8_t last_read;

// A short form of PyTorch's torch/csrc/jit/serialization/unpickler.cpp. It aborts where LibTorch
// would read without a check.
class Unpickler {
  public:
    Unpickler(std::string_view bytes, const std::vector<std::vector<std::byte>>& records)
        : bytes_(bytes), records_(records) {}

    void run() {
        if (byte() != 0x80 || byte() != 2) throw Thrown();
        while (step(byte())) {
        }
        if (stack_.size() != 1) throw Thrown();
    }

  private:
    uint8_t byte() {
        if (at_ >= bytes_.size()) throw Thrown();
        return static_cast<uint8_t>(bytes_[at_++]);
    }
    int64_t number(size_t width) {
        uint64_t value = 0;
        for (size_t i = 0; i < width; ++i) value |= static_cast<uint64_t>(byte()) << (8 * i);
        return static_cast<int64_t>(value);
    }
    std::string taken(int64_t count) {
        DSL_CHECK(count <= std::ssize(bytes_) - static_cast<int64_t>(at_), "it allocates {}",
                  count);
        at_ += static_cast<size_t>(count);
        return std::string(
            bytes_.substr(at_ - static_cast<size_t>(count), static_cast<size_t>(count)));
    }
    std::string line() {
        const size_t end = bytes_.find('\n', at_);
        DSL_CHECK(end != std::string_view::npos, "it reads for ever");
        const std::string text(bytes_.substr(at_, end - at_));
        at_ = end + 1;
        return text;
    }

    static Ref make(Kind kind) {
        auto value = std::make_shared<Value>();
        value->kind = kind;
        return value;
    }
    void push(Kind kind, int64_t integer = 0) {
        stack_.push_back(make(kind));
        stack_.back()->integer = integer;
    }
    Ref pop() {
        DSL_CHECK(!stack_.empty(), "it takes from an empty stack");
        Ref value = stack_.back();
        stack_.pop_back();
        return value;
    }
    static int64_t integer(const Ref& value) {
        if (value->kind != Kind::kInteger) throw Thrown();
        return value->integer;
    }
    static const Ref& at(const Ref& value, size_t index) {
        if (value->kind != Kind::kTuple || index >= value->items.size()) throw Thrown();
        return value->items[index];
    }
    size_t take_mark() {
        if (marks_.empty()) throw Thrown();
        const size_t start = marks_.back();
        marks_.pop_back();
        DSL_CHECK(start <= stack_.size(), "a mark beyond the stack");
        return start;
    }
    std::vector<Ref> items_from(size_t start) {
        std::vector<Ref> items(stack_.begin() + static_cast<ptrdiff_t>(start), stack_.end());
        stack_.resize(start);
        return items;
    }
    void tuple(size_t count) {
        if (stack_.size() < count) throw Thrown();
        Ref value = make(Kind::kTuple);
        value->items = items_from(stack_.size() - count);
        stack_.push_back(value);
    }
    void remember(int64_t index) {
        DSL_CHECK(index < 1 << 24, "a memo of {}", index);
        DSL_CHECK(!stack_.empty(), "it remembers nothing");
        if (static_cast<size_t>(index) >= memo_.size())
            memo_.resize(static_cast<size_t>(index) + 1);
        memo_[static_cast<size_t>(index)] = stack_.back();
    }
    void recall(int64_t index) {
        if (static_cast<size_t>(index) >= memo_.size()) throw Thrown();
        const Ref& value = memo_[static_cast<size_t>(index)];
        stack_.push_back(value == nullptr ? make(Kind::kNone) : value);
    }
    void set_items(size_t start) {
        if (start == 0) throw Thrown();
        const std::vector<Ref> items = items_from(start);
        if (stack_.back()->kind != Kind::kDict) throw Thrown();
        DSL_CHECK(items.size() % 2 == 0, "it reads a value behind the stack");
        stack_.back()->items.insert(stack_.back()->items.end(), items.begin(), items.end());
    }

    bool step(uint8_t op) {
        switch (op) {
            case ']':
                push(Kind::kList);
                break;
            case ')':
                push(Kind::kTuple);
                break;
            case '}':
                push(Kind::kDict);
                break;
            case 'q':
                remember(number(1));
                break;
            case 'r':
                remember(number(4));
                break;
            case 'h':
                recall(number(1));
                break;
            case 'j':
                recall(number(4));
                break;
            case '(':
                marks_.push_back(stack_.size());
                break;
            case 0x88:
            case 0x89:
                push(Kind::kBool, op == 0x88);
                break;
            case 'N':
                push(Kind::kNone);
                break;
            case 'K':
                push(Kind::kInteger, number(1));
                break;
            case 'M':
                push(Kind::kInteger, number(2));
                break;
            case 'J':
                push(Kind::kInteger, static_cast<int32_t>(number(4)));
                break;
            case 0x8a:
                if (byte() != 8) throw Thrown();
                push(Kind::kInteger, number(8));
                break;
            case 'X': {
                const int64_t count = number(4);
                push(Kind::kText);
                stack_.back()->text = taken(count);
                break;
            }
            case 'G':
                number(8);
                push(Kind::kReal);
                break;
            default:
                return step_more(op);
        }
        return true;
    }

    bool step_more(uint8_t op) {
        switch (op) {
            case 't':
                tuple(stack_.size() - take_mark());
                break;
            case 0x85:
            case 0x86:
            case 0x87:
                tuple(op - 0x84U);
                break;
            case 'e': {
                const size_t start = take_mark();
                if (start == 0) throw Thrown();
                const std::vector<Ref> items = items_from(start);
                if (stack_.back()->kind != Kind::kList) throw Thrown();
                stack_.back()->items.insert(stack_.back()->items.end(), items.begin(), items.end());
                break;
            }
            case 'l': {
                Ref list = make(Kind::kList);
                list->items = items_from(take_mark());
                stack_.push_back(list);
                break;
            }
            case 'u':
                set_items(take_mark());
                break;
            case 's':
                if (stack_.size() < 3) throw Thrown();
                set_items(stack_.size() - 2);
                break;
            case 'c':
                global();
                break;
            case 0x81:
                static_cast<void>(pop());
                break;
            case 'b':
            case 'R': {
                if (stack_.size() < 2) throw Thrown();
                const Ref argument = pop();
                const auto index = static_cast<size_t>(integer(pop()));
                if (index >= globals_.size()) throw Thrown();
                stack_.push_back(call(globals_[index], argument));
                break;
            }
            case 'Q':
                stack_.push_back(storage(pop()));
                break;
            case '.':
                return false;
            default:
                throw Thrown();
        }
        return true;
    }

    // Returns the bytes of an element of TYPE, LibTorch's number for a type.
    static int64_t element_bytes(int64_t type) {
        constexpr std::array<int64_t, 30> kBytes = {1, 1, 2, 4, 8, 2, 4, 8, 4, 8, 16, 1, 1, 1, 4,
                                                    2, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1,  1, 2, 4, 8};
        if (type < 0 || type >= std::ssize(kBytes)) throw Thrown();
        DSL_CHECK(kBytes[static_cast<size_t>(type)] > 0, "a type {} of less than a byte", type);
        return kBytes[static_cast<size_t>(type)];
    }
    void global() {
        static const std::map<std::string, int64_t> kTypes = {{"ByteStorage", 0},
                                                              {"CharStorage", 1},
                                                              {"ShortStorage", 2},
                                                              {"IntStorage", 3},
                                                              {"LongStorage", 4},
                                                              {"HalfStorage", 5},
                                                              {"FloatStorage", 6},
                                                              {"DoubleStorage", 7},
                                                              {"ComplexHalfStorage", 8},
                                                              {"ComplexFloatStorage", 9},
                                                              {"ComplexDoubleStorage", 10},
                                                              {"BoolStorage", 11},
                                                              {"QInt8Storage", 12},
                                                              {"QUInt8Storage", 13},
                                                              {"QInt32Storage", 14},
                                                              {"BFloat16Storage", 15},
                                                              {"QUInt4x2Storage", 16},
                                                              {"Float8_e5m2Storage", 23},
                                                              {"Float8_e4m3fnStorage", 24},
                                                              {"Float8_e5m2fnuzStorage", 25},
                                                              {"Float8_e4m3fnuzStorage", 26},
                                                              {"UInt16Storage", 27},
                                                              {"UInt32Storage", 28},
                                                              {"UInt64Storage", 29}};
        static const std::map<std::string, int64_t> kSchemes = {
            {"per_tensor_affine", 0},
            {"per_channel_affine", 1},
            {"per_tensor_symmetric", 2},
            {"per_channel_symmetric", 3},
            {"per_channel_affine_float_qparams", 4}};
        const std::string module = line(), name = line();
        if (module == "torch" && name != "device") {
            const auto type = kTypes.find(name), scheme = kSchemes.find(name);
            if (type != kTypes.end()) return push(Kind::kInteger, type->second);
            if (scheme != kSchemes.end()) return push(Kind::kInteger, scheme->second);
            throw Thrown();
        }
        DSL_CHECK(module != "torch._tensor", "`{}` shifts the names that follow", name);
        globals_.push_back(module + " " + name);
        push(Kind::kInteger, std::ssize(globals_) - 1);
    }

    Ref storage(const Ref& id) {
        if (at(id, 0)->text != "storage") throw Thrown();
        const int64_t element = element_bytes(integer(at(id, 1)));
        const std::string& key = at(id, 2)->text;
        const int64_t numel = integer(at(id, 4));
        Ref tensor = make(Kind::kTensor);
        tensor->element_bytes = element;
        if (numel <= 0) {
            DSL_CHECK(numel == 0, "a storage of {} elements", numel);
            return tensor;
        }
        DSL_CHECK(key.size() == 1 && key[0] >= '0' && key[0] < '5', "a record `{}`", key);
        const auto& record = records_[static_cast<size_t>(key[0] - '0')];
        tensor->storage = record.data();
        read(*tensor, 0);
        read(*tensor, numel - 1);
        return tensor;
    }

    // Reads an element, so that the address sanitizer sees if it is outside of the record.
    static void read(const Value& tensor, int64_t element) {
        const std::byte* const first = tensor.storage + element * tensor.element_bytes;
        last_read = static_cast<uint8_t>(first[0]);
        last_read = static_cast<uint8_t>(first[tensor.element_bytes - 1]);
    }

    Ref tensor(const Ref& arguments, bool quantized) {
        if (at(arguments, 0)->kind != Kind::kTensor) throw Thrown();
        Ref made = make(Kind::kTensor);
        made->storage = at(arguments, 0)->storage;
        made->element_bytes = at(arguments, 0)->element_bytes;
        const int64_t offset = integer(at(arguments, 1));
        const Ref sizes = at(arguments, 2), strides = at(arguments, 3);
        if (sizes->kind != Kind::kTuple || strides->kind != Kind::kTuple) throw Thrown();
        DSL_CHECK(sizes->items.size() == strides->items.size(), "strides of another number");
        int64_t last = offset;
        bool is_empty = false;
        for (size_t d = 0; d < sizes->items.size(); ++d) {
            const int64_t size = integer(sizes->items[d]), stride = integer(strides->items[d]);
            DSL_CHECK(size >= 0 && stride >= 0, "size {}, stride {}", size, stride);
            is_empty = is_empty || size == 0;
            int64_t step = 0;
            DSL_CHECK(is_empty || (!__builtin_mul_overflow(size - 1, stride, &step) &&
                                   !__builtin_add_overflow(last, step, &last)),
                      "it overflows");
        }
        DSL_CHECK(offset >= 0, "offset {}", offset);
        if (!is_empty) {
            DSL_CHECK(made->storage != nullptr, "elements in an empty storage");
            read(*made, offset);
            read(*made, last);
        }
        if (!quantized && arguments->items.size() > 6)
            DSL_CHECK(at(arguments, 6)->items.empty(), "bits that change the numbers");
        return made;
    }

    Ref call(const std::string& name, const Ref& argument) {
        if (name == "torch._utils _rebuild_tensor_v2") return tensor(argument, false);
        if (name == "torch._utils _rebuild_qtensor") return tensor(argument, true);
        if (name.starts_with("torch.jit._pickle build_")) {
            if (at(argument, 0)->kind != Kind::kList) throw Thrown();
            return at(argument, 0);
        }
        if (name == "torch.jit._pickle restore_type_tag") return at(argument, 0);
        if (name == "collections OrderedDict") return make(Kind::kNone);
        Ref object = make(Kind::kOther);
        object->items = {argument};
        return object;
    }

    std::string_view bytes_;
    const std::vector<std::vector<std::byte>>& records_;
    size_t at_ = 0;
    std::vector<Ref> stack_;
    std::vector<size_t> marks_;
    std::vector<Ref> memo_;
    std::vector<std::string> globals_;
};

// Five records and two pickles, without the zip file that would contain them.
struct Archive {
    std::vector<std::vector<std::byte>> records;
    ZipDirectory directory{"m", {}};

    Archive() {
        for (const size_t bytes : kRecordBytes) records.emplace_back(bytes);
        for (size_t i = 0; i < records.size(); ++i) add("data/" + std::to_string(i), records[i]);
        add("constants.pkl", std::as_bytes(std::span(kNoConstants.substr(0, kConstantsBytes))));
        add("data.pkl", {});
    }
    void add(const std::string& name, std::span<const std::byte> content) {
        directory.records.push_back(
            {.name = name, .content_bytes = std::ssize(content), .stored = content});
    }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t length) {
    static Archive archive;
    const std::string_view pickle(reinterpret_cast<const char*>(data), length);
    archive.directory.records.back().stored = std::as_bytes(std::span(pickle));
    const std::string path = "fuzz";
    try {
        const ScriptArchive checked(path, archive.directory, 1 << 16, [](const ZipRecord& record) {
            return std::string(reinterpret_cast<const char*>(record.stored.data()),
                               record.stored.size());
        });
    } catch (const Error& error) {
        DSL_CHECK(error.code() == ExitCode::kInput, "{}", error.what());
        fuzz::check_shown(error.what());
        return 0;
    }
    try {
        Unpickler(pickle, archive.records).run();
    } catch (const Thrown&) {
    }
    return 0;
}
