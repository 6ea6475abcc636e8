// Pickles written by hand, opcode by opcode, compared with Python's results.
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "storage/pickle/pickle.h"
#include "support/catch.h"
#include "support/text_tools.h"

namespace dslaunch {

using namespace storage;
namespace {

using namespace std::string_literals;
using Kind = PickleValue::Kind;

Pickle unpickle(const std::string& bytes) {
    return Pickle("x.pt", std::as_bytes(std::span(bytes)));
}

std::string refusal(const std::string& bytes) {
    return test::error_of(ExitCode::kInput, [&] { unpickle(bytes); });
}

const std::string kStart = "\x80\x02"s;
// _rebuild_tensor_v2(('storage', FloatStorage, '7', 'cpu', 6), 1, (2, 2), (2, 1), False, {})
const std::string kTensor =
    "ctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nFloatStorage\n"
    "X\x01\0\0\0"
    "7X\x03\0\0\0cpuK\x06tQK\x01K\x02K\x02\x86K\x02K\x01\x86\x89}tR"s;

}  // namespace

TEST_CASE("A pickle of plain values becomes those values") {
    // {'a': [1, -2, 300, 2**40, 1.5, True, None], 'b': (b'x', ())} by pickle.dumps(…, 2) and 4.
    const std::string two = kStart +
                            "}q\0(X\x01\0\0\0aq\1]q\2(K\1J\xfe\xff\xff\xffM,\1\x8a\x06\0\0\0\0\0"
                            "\1G?\xf8\0\0\0\0\0\0\x88NeX\1\0\0\0bC\1x)\x86u."s;
    const Pickle pickle = unpickle(two);
    const PickleValue* list = pickle.root().find("a");
    REQUIRE(list != nullptr);
    REQUIRE(list->items.size() == 7);
    CHECK(list->items[0]->integer == 1);
    CHECK(list->items[1]->integer == -2);
    CHECK(list->items[2]->integer == 300);
    CHECK(list->items[3]->integer == int64_t{1} << 40);
    CHECK(list->items[4]->real == 1.5);
    CHECK(list->items[5]->kind == Kind::kBool);
    CHECK(list->items[6]->kind == Kind::kNone);
    const PickleValue* tuple = pickle.root().find("b");
    REQUIRE(tuple->items.size() == 2);
    CHECK(tuple->items[0]->text == "x");
    CHECK(tuple->items[1]->items.empty());
    CHECK(pickle.root().find("c") == nullptr);
}

TEST_CASE("A pickled tensor is a description of elements in a storage") {
    const Pickle pickle = unpickle(kStart + kTensor + ".");
    const PickleValue& tensor = pickle.root();
    REQUIRE(tensor.kind == Kind::kTensor);
    CHECK(tensor.items[0]->text == "torch FloatStorage");
    CHECK(tensor.items[0]->items[0]->text == "7");
    CHECK(tensor.items[1]->integer == 1);
    CHECK(tensor.items[2]->items[1]->integer == 2);
    CHECK(tensor.items[3]->items[0]->integer == 2);
}

TEST_CASE("DeepSpeed's own objects are kept as records") {
    const Pickle pickle = unpickle(kStart +
                                   "cdeepspeed.runtime.fp16.loss_scaler\nLossScaler\n)\x81}"
                                   "X\x09\0\0\0cur_scaleG?\xf0\0\0\0\0\0\0sb."s);
    REQUIRE(pickle.root().kind == Kind::kRecord);
    CHECK(pickle.root().text == "deepspeed.runtime.fp16.loss_scaler LossScaler");
    CHECK(pickle.root().items[1]->find("cur_scale")->real == 1.0);
}

TEST_CASE("A pickle that would do something is refused by name and does nothing") {
    const std::string canary = std::filesystem::temp_directory_path() / "dslaunch-unpickler-canary";
    std::filesystem::remove(canary);
    const std::string touch = fmt::format("touch {}", canary);
    const auto text = [](const std::string& value) {
        return "X"s + static_cast<char>(value.size()) + "\0\0\0"s + value;
    };
    struct Row {
        std::string pickle;
        std::string says;
    };
    const std::vector<Row> rows = {
        {kStart + "cposix\nsystem\n" + text(touch) + "\x85R.", "`posix system`"},
        {kStart + "cos\nsystem\n" + text(touch) + "\x85R.", "`os system`"},
        {kStart + "c__builtin__\neval\n" + text("1") + "\x85R.", "`__builtin__ eval`"},
        {"\x80\x04" + ("\x8c\x08"s + "builtins\x8c\x04"s + "exec\x93") + text("1") + "\x85R.",
         "`builtins exec`"},
        {kStart + "csubprocess\nPopen\n" + text(touch) + "\x85\x81.", "`subprocess Popen`"},
        {kStart + "cbuiltins\ngetattr\n" + text("a") + text("b") + "\x86R.", "`builtins getattr`"},
        {kStart + "ctorch.hub\nload\n)R.", "`torch.hub load`"},
        {kStart + "ctorch._utils\n_rebuild_tensor\n)R.", "`torch._utils _rebuild_tensor`"},
        {kStart + "ctorch\nFloatStorage\n)R.", "call of `torch FloatStorage`"},
        {kStart + "ctorch\nFloatStorage\n}b.",
         "attributes are set on a value that cannot have any"},
        {kStart + "c__builtin__\ndict\n)R.", "call of `__builtin__ dict`"},
        {kStart + "ctorch._utils\n_rebuild_tensor_v2\n)R.", "call of `torch._utils"},
        {kStart + "ctorch._tensor\n_rebuild_from_type_v2\n(cos\nsystem\n)N}tR.", "`os system`"},
        {kStart + "ctorch._tensor\n_rebuild_from_type_v2\n(ctorch\nSize\nctorch\nTensor\n)}tR.",
         "call of `torch._tensor _rebuild_from_type_v2`"},
        {kStart + "K\1)R.", "call of a value that is not a class"},
        {kStart + "}}R.", "the arguments of a call are not a tuple"},
        {kStart + text("module") + "Q.", "persistent id"},
        {"\x80\x02P1\n.", "opcode 0x50"},
        {kStart + "(iposix\nsystem\n.", "opcode 0x69"},
        {kStart + "\x82\1.", "opcode 0x82"},
        {kStart + "\x97.", "opcode 0x97"},
        {kStart + "cos\x1b[2J\nsystem\n.", "\\x1b"},
    };
    for (const Row& row : rows) {
        INFO(row.says);
        const std::string said = refusal(row.pickle);
        INFO(said);
        CHECK(said.find(row.says) != std::string::npos);
        CHECK(said.starts_with("x.pt: pickle, offset "));
        CHECK(said.find('\x1b') == std::string::npos);
    }
    CHECK_FALSE(std::filesystem::exists(canary));
}

TEST_CASE("A pickle that is damaged or wants too much is refused") {
    struct Row {
        std::string pickle;
        std::string says;
    };
    const std::vector<Row> rows = {
        {"", "1 bytes are needed, but only 0 are left"},
        {kStart, "are left"},
        {"K\1.", "does not begin"},
        {"\x80\6N.", "protocol 6"},
        {kStart + "N\x80\2.", "protocol 2"},
        {kStart + "NN.", "left over"},
        {kStart + "(N.", "left over"},
        {kStart + ".", "stack is empty"},
        {kStart + "t.", "no mark"},
        {kStart + "K\1(a.", "stack is empty"},
        {kStart + "NK\1a.", "items are added to a value that cannot have any"},
        {kStart + "}(K\1u.", "a key has no value"},
        {kStart + "}]K\1s.", "cannot be a key"},
        {kStart + "h\1.", "memo entry 1 does not exist"},
        {kStart + "Nr\xff\xff\xff\xff.", "memo entry 4294967295"},
        {kStart + "X\xff\xff\xff\xff", "a string of 4294967295 bytes"},
        {kStart + "\x8d\xff\xff\xff\xff\xff\xff\xff\xff", "a string of 18446744073709551615"},
        {kStart + "\x8e\0\0\0\1\0\0\0\0"s, "are needed"},
        {kStart + "\x8a\x09\1\1\1\1\1\1\1\1\1.", "an integer of 9 bytes"},
        {kStart + "\x8b\xff\xff\xff\xff.", "an integer of 4294967295 bytes"},
        {kStart + "\x95\xff\xff\xff\xff\xff\xff\xff\x7f.", "a frame needs"},
        {kStart + "cno end", "a name has no end"},
        {kStart + "]q\1h\1a.", "contains itself"},
        {kStart + "]q\1]h\1aa.", "contains itself"},
        {kStart + test::repeated("]", 1000) + test::repeated("a", 999) + ".",
         "nested more than 64 deep"},
        {kStart + "]" + test::repeated("\x85", 1000) + ".", "nested more than 64 deep"},
        // The depth counts along the longest way, whichever way is followed first.
        {kStart + "]" + test::repeated("\x85", 40) + "q\1" + test::repeated("\x85", 40) +
             "h\1\x86.",
         "nested more than 64 deep"},
    };
    for (const Row& row : rows) {
        INFO(row.says);
        const std::string said = refusal(row.pickle);
        INFO(said);
        CHECK(said.find(row.says) != std::string::npos);
    }
}

TEST_CASE("Pickles that grow out of few bytes end at the limits") {
    const auto many = static_cast<int>(kPickleValuesMax);
    CHECK(refusal(kStart + test::repeated("N0", many + 1) + "N.").find("more than") !=
          std::string::npos);
    // A tuple of 64 Ki values, and 100 copies of it.
    const std::string copies = kStart + "(" + test::repeated("N", 1 << 16) + "tq\0"s + "\x85q\1(" +
                               test::repeated("ctorch\nSize\nh\1R", 100) + "t.";
    CHECK(refusal(copies).find("more than") != std::string::npos);
    // Shared values count once: 2^20 paths lead to the last one. 2^60 paths could never be
    // followed.
    const auto shared = [](int times) {
        std::string pickle = kStart + "N";
        for (int i = 0; i < times; ++i) pickle += "q\1h\1\x86";
        return pickle + ".";
    };
    CHECK(unpickle(shared(20)).root().items.size() == 2);
    CHECK(refusal(shared(60)).find("shared values expand to more than") != std::string::npos);
}

TEST_CASE("No prefix of a pickle is read as a whole one") {
    const std::string whole = kStart + "}X\1\0\0\0a"s + kTensor + "s.";
    REQUIRE(refusal(whole) == "accepted");
    for (size_t length = 0; length < whole.size(); ++length)
        CHECK(refusal(whole.substr(0, length)) != "accepted");
}

}  // namespace dslaunch
