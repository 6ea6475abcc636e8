// Archives whose pickles and code claim things that LibTorch would believe.
#include "storage/scripted/script_archive.h"

#include <string>
#include <vector>

#include "base/error.h"
#include "base/text_bytes.h"
#include "storage/files/zip_archive.h"
#include "storage/scripted/script_code.h"
#include "storage/scripted/script_tensors.h"
#include "support/catch.h"
#include "support/text_tools.h"

namespace dslaunch {

using namespace storage;
namespace {

using namespace std::string_literals;
using Catch::Contains;

std::string script_archive_little(int64_t number, size_t bytes) {
    return {reinterpret_cast<const char*>(&number), bytes};
}
std::string integer(int64_t number) {
    return "J" + script_archive_little(number, 4);
}
std::string word(const std::string& text) {
    return "X" + script_archive_little(std::ssize(text), 4) + text;
}
std::string tuple(const std::string& items) {
    return "(" + items + "t";
}
std::string storage_of(const std::string& key, const std::string& type, int64_t numel) {
    return tuple(word("storage") + "ctorch\n" + type + "Storage\n" + word(key) + word("cpu") +
                 integer(numel)) +
           "Q";
}
std::string numbers(const std::vector<int64_t>& all) {
    std::string items;
    for (const int64_t number : all) items += "\x8a\x08" + script_archive_little(number, 8);
    return tuple(items);
}
const std::string kHooks = "ccollections\nOrderedDict\n)R";

struct Tensor {
    std::string storage = storage_of("0", "Float", 24);
    int64_t offset = 0;
    std::vector<int64_t> sizes = {4, 6};
    std::vector<int64_t> strides = {6, 1};
    std::string behind = {};

    [[nodiscard]] std::string text() const {
        return "ctorch._utils\n_rebuild_tensor_v2\n" +
               tuple(storage + "\x8a\x08" + script_archive_little(offset, 8) + numbers(sizes) +
                     numbers(strides) + "\x89" + kHooks + behind) +
               "R";
    }
};

// Returns the error for an archive whose data.pkl is DATA, with 96 bytes in record data/0 and 16 in
// data/1; "accepted" if there is no error.
std::string told(const std::string& data, const std::string& constants = "\x80\x02)."s,
                 const std::string& code = "") {
    const std::string record(96, '\1'), small(16, '\1');
    ZipDirectory directory{"m", {}};
    const auto add = [&](const std::string& name, const std::string& content) {
        directory.records.push_back(
            {.name = name, .content_bytes = std::ssize(content), .stored = bytes_in(content)});
    };
    add("data/0", record);
    add("data/1", small);
    add("constants/0", small);
    add("data.pkl", data);
    add("constants.pkl", constants);
    add("code/__torch__/m.py", code);
    const std::string path = "x.pt";
    return test::error_of(ExitCode::kInput, [&] {
        const ScriptArchive archive(path, directory, 1 << 10, [](const ZipRecord& one) {
            return std::string(text_in(one.stored));
        });
    });
}

std::string pickled(const std::string& value) {
    return "\x80\x02"s + value + ".";
}

std::string told(const Tensor& tensor) {
    return told(pickled(tensor.text()));
}

std::string code_told(const std::string& code) {
    return told(pickled("N"), "\x80\x02)."s, code);
}

}  // namespace

TEST_CASE("a tensor of a script that lies in its record is taken") {
    const std::vector<Tensor> good = {
        {},
        {.sizes = {}, .strides = {}},
        {.offset = 23, .sizes = {1}, .strides = {1}},
        {.offset = 2, .sizes = {4, 2}, .strides = {6, 3}},
        {.sizes = {0, 1000}, .strides = {1000, 1}},
        {.offset = 24, .sizes = {0}, .strides = {1}},
        {.sizes = {1000, 2}, .strides = {0, 1}},
        {.sizes = {1, 6}, .strides = {int64_t{1} << 40, 1}},
        {.storage = storage_of("0", "Double", 12), .sizes = {12}, .strides = {1}},
        {.storage = storage_of("9", "Float", 0), .sizes = {0}, .strides = {1}},
    };
    for (const Tensor& tensor : good) CHECK(told(tensor) == "accepted");
    CHECK(told(pickled("N"),
               pickled(Tensor{.storage = storage_of("0", "Float", 4), .sizes = {4}, .strides = {1}}
                           .text() +
                       "\x85")) == "accepted");
}

TEST_CASE("a tensor of a script that claims more than its record is refused, named") {
    struct Row {
        Tensor tensor;
        const char* why;
    };
    const Row rows[] = {
        {{.offset = 1}, "needs 25 elements, but the storage has 24"},
        {{.offset = -1}, "a tensor has impossible sizes"},
        {{.offset = int64_t{1} << 61}, "a tensor has impossible sizes"},
        {{.sizes = {5, 6}}, "needs 30 elements"},
        {{.sizes = {-4, 6}}, "a tensor has impossible sizes"},
        {{.sizes = {int64_t{1} << 40, int64_t{1} << 40}, .strides = {0, 0}},
         "a tensor has impossible sizes"},
        {{.sizes = {int64_t{1} << 40}, .strides = {0}}, "expand to more than"},
        {{.strides = {7, 1}}, "needs 27 elements"},
        {{.strides = {6, -1}}, "a tensor has impossible sizes"},
        {{.strides = {int64_t{1} << 60, 1}}, "a tensor has impossible sizes"},
        {{.strides = {6}}, "a tensor has impossible sizes"},
        {{.offset = 25, .sizes = {0}, .strides = {1}}, "needs 25 elements"},
        {{.sizes = std::vector<int64_t>(65, 1), .strides = std::vector<int64_t>(65, 1)},
         "a tensor has impossible sizes"},
        {{.storage = storage_of("0", "Float", 25)}, "its record has only 96 bytes"},
        {{.storage = storage_of("0", "Double", 24)}, "its record has only 96 bytes"},
        {{.storage = storage_of("0", "Float", -1)}, "it has -1 elements"},
        {{.storage = storage_of("7", "Float", 24)}, "its record is missing"},
        {{.storage = storage_of("../constants/0", "Float", 4)}, "its record is missing"},
        {{.storage = storage_of("0", "QUInt4x2", 24)}, "it was refused and not run"},
        {{.storage = tuple(word("storage") + "c__torch__\nMyStorage\n" + word("0") + word("cpu") +
                           integer(24)) +
                     "Q"},
         "its type"},
        {{.behind = "}" + word("neg") + "\x88s"}, "with these arguments is not allowed"},
    };
    for (const Row& row : rows) {
        const std::string said = told(row.tensor);
        INFO(said << "\nexpected: " << row.why);
        CHECK(test::mentions(said, row.why));
        CHECK(said.starts_with("x.pt: "));
    }
    const std::string constant = Tensor{.storage = storage_of("0", "Float", 24)}.text();
    CHECK_THAT(told(pickled("N"), pickled(constant + "\x85")),
               Contains("x.pt: constants.pkl: storage 0") && Contains("16 bytes"));
    // A tensor that no other object holds is made nevertheless.
    CHECK_THAT(told(pickled(tuple(Tensor{.offset = 1}.text()) + "0N")), Contains("needs 25"));
}

TEST_CASE("a quantized tensor has a scale for each of its channels") {
    const auto quantized = [](int64_t scales, int64_t axis) {
        const auto of_channels = [&](const char* type) {
            return Tensor{.storage = storage_of("1", type, 2), .sizes = {scales}, .strides = {1}}
                .text();
        };
        return pickled(
            "ctorch._utils\n_rebuild_qtensor\n" +
            tuple(storage_of("0", "QInt8", 96) + "K\0"s + numbers({2, 48}) + numbers({48, 1}) +
                  tuple("ctorch\nper_channel_affine\n" + of_channels("Double") +
                        of_channels("Long") + "\x8a\x08" + script_archive_little(axis, 8)) +
                  "\x89" + kHooks) +
            "R");
    };
    CHECK(told(quantized(2, 0)) == "accepted");
    CHECK_THAT(told(quantized(1, 0)), Contains("scales for [1] channels, expected 2"));
    CHECK_THAT(told(quantized(2, 1)), Contains("scales for [2] channels, expected 48"));
    CHECK_THAT(told(quantized(2, 2)), Contains("scales for dimension 2, which does not exist"));
    CHECK_THAT(told(quantized(2, -1)), Contains("scales for dimension -1, which does not exist"));
}

TEST_CASE("a script's pickle is what LibTorch's unpickler takes as it stands, and nothing else") {
    const std::string object = "c__torch__.m\nNet\n";
    CHECK(told(pickled(object + ")\x81}(" + word("a") + "K\1ub")) == "accepted");
    CHECK(told(pickled(object + "K\1R")) == "accepted");  // an enumerator
    CHECK(told(pickled("ctorch.jit._pickle\nbuild_intlist\n](K\1K\2e\x85R")) == "accepted");
    CHECK(told(pickled("ctorch.jit._pickle\nrestore_type_tag\n}" + word("Dict[str, int]") +
                       "\x86R")) == "accepted");
    CHECK(told(pickled("ctorch\ndevice\n" + word("cpu") + "\x85R")) == "accepted");
    struct Row {
        std::string data;
        const char* why;
    };
    const Row rows[] = {
        {")r" + script_archive_little(0x10000000, 4), "memo entry 268435456"},
        {test::repeated("(", 200'000) + test::repeated("t", 200'000),
         "are nested more than 512 deep"},
        {"(X" + script_archive_little(0x70000000, 4) + "abct", "a string of"},
        // Each level contains the level before twice.
        {"N" + test::repeated("q\0h\0\x86"s, 60), "shared values expand to more than"},
        {"](h\0e"s, "memo entry 0 does not exist"},
        {"]q\0h\0a"s, "a value contains itself"},
        // A list that gets a type stays the same list.
        {"]q\0000ctorch.jit._pickle\nbuild_intlist\nh\0\x85Rh\0(h\0e0"s, "a value contains itself"},
        // Functors are numbers to LibTorch: only names are called here.
        {"c__torch__.m\nNet\n0K\0]R"s, "is not allowed"},
        {object + "K\1\x81", "an object is created with arguments"},
        {"ctorch._utils\n_rebuild_sparse_tensor\n", "it was refused and not run"},
        {"ctorch._tensor\n_rebuild_from_type_v2\n", "it was refused and not run"},
        {"ctorch.jit._pickle\nbuild_tensor_from_id\n", "it was refused and not run"},
        {"ctorch.distributed.rpc\nrref\n", "it was refused and not run"},
        {"cos\nsystem\n", "it was refused and not run"},
        {"c__torch__.m;\nNet\n", "it was refused and not run"},
        {"ctorch.jit._pickle\nbuild_intlist\n](" + word("a") + "e\x85R", "is not allowed"},
        {"ctorch.jit._pickle\nrestore_type_tag\n]" + word(test::repeated("List[", 80)) + "\x86R",
         "is not allowed"},
    };
    for (const Row& row : rows) {
        const std::string said = told(pickled(row.data));
        INFO(said << "\nexpected: " << row.why);
        CHECK(test::mentions(said, row.why));
    }
}

TEST_CASE("code that nests deeper than LibTorch's stack is refused, with its line") {
    const std::string begin = "class Net(Module):\n  def forward(self) -> int:\n    return ";
    CHECK(code_told(begin + test::repeated("(", 100) + "1" + test::repeated(")", 100) + "\n") ==
          "accepted");
    CHECK(code_told(begin + "[" + test::repeated("1, ", 100'000) + "]\n") == "accepted");
    CHECK(code_told(begin + "\"" + test::repeated("( ", 5000) + "\\\"\"\n") == "accepted");
    struct Row {
        std::string code;
        const char* why;
    };
    std::string blocks, chain;
    for (int i = 0; i < 200; ++i) blocks += std::string(4 + i, ' ') + "if True:\n";
    for (int i = 0; i < 10'000; ++i)
        chain += "class K" + std::to_string(i) + "(Module):\n  x : __torch__.m.K" +
                 std::to_string(i + 1) + "\n";
    const Row rows[] = {
        {begin + test::repeated("(", 100'000) + "1" + test::repeated(")", 100'000),
         "m.py:3: an expression"},
        {begin + test::repeated("- ", 3000) + "1", "m.py:3: an expression"},
        {begin + "x" + test::repeated(".T", 3000), "m.py:3: an expression"},
        {begin + "x" + test::repeated("[0]", 3000), "m.py:3: an expression"},
        {begin + test::repeated("torch.neg(", 1000) + "1" + test::repeated(")", 1000),
         "an expression"},
        {"class A:\n  x : " + test::repeated("List[", 20'000) + "int" + test::repeated("]", 20'000),
         "m.py:2: an expression"},
        {"def f() -> int:\n" + blocks, "blocks are nested more than"},
        {chain, "its code is nested more than"},
        {"def f() -> int:\n  if a:\n    x = 1\n" + test::repeated("  elif a:\n    x = 1\n", 300),
         "elif"},
        {begin + "[" + test::repeated("1, ", 300'000) + "]", "m.py:3: a statement has more than"},
        {begin + "1 + \\\n" + test::repeated("1 + \\\n", 10), "a line is continued"},
        {begin + "1  # (((", "a comment contains quotes or brackets"},
        {begin + "\"a\n", "a string is not closed"},
        {begin + "(1", "a bracket is not closed"},
        {begin + "1)", "a closing bracket has no opening bracket"},
        {"def f() -> int:\n  a = __torch__\n",
         "as a class or a function, but this name is only the beginning of"},
    };
    for (const Row& row : rows) {
        const std::string said = code_told(row.code);
        INFO(said.substr(0, 500) << "\nexpected: " << row.why);
        CHECK(test::mentions(said, row.why));
    }
}

TEST_CASE("the depth of code goes through the classes and functions that it needs") {
    const std::string path = "x.pt";
    const auto depth_of = [&](const std::string& text) {
        ScriptCode code(path);
        code.add("code/__torch__/m.py", text);
        return code.depth();
    };
    const std::string b = "class B(Module):\n  def f(self: __torch__.m.B) -> int:\n    return 1\n";
    const std::string a = "class A(Module):\n  x : __torch__.m.B\n";
    CHECK(depth_of("") == 0);
    CHECK(depth_of(a + b) == depth_of(b) + depth_of(a));
    // Methods of a class may call each other.
    CHECK(depth_of(b + "  def g(self: __torch__.m.B) -> int:\n    return 1\n") > depth_of(b) + 10);
}

TEST_CASE("an archive of other numbers, or of before PyTorch 1.4, is refused") {
    const std::string path = "x.pt", big = "big";
    const std::string nothing = "\x80\x02)."s;
    for (const auto& [name, why] :
         {std::pair{"byteorder", "not little-endian"}, std::pair{"model.json", "before 1.4"}}) {
        ZipDirectory directory{"m", {}};
        for (const auto& [record, content] :
             {std::pair{std::string(name), &big}, std::pair{"data.pkl"s, &nothing},
              std::pair{"constants.pkl"s, &nothing}})
            directory.records.push_back({.name = record,
                                         .content_bytes = std::ssize(*content),
                                         .stored = bytes_in(*content)});
        CHECK_THAT(test::error_of(ExitCode::kInput,
                                  [&] {
                                      const ScriptArchive archive(
                                          path, directory, 100, [](const ZipRecord& one) {
                                              return std::string(text_in(one.stored));
                                          });
                                  }),
                   Contains(why));
    }
    CHECK_THAT(test::error_of(ExitCode::kInput,
                              [&] {
                                  const ScriptArchive archive(path, ZipDirectory{"m", {}}, 100,
                                                              [](const ZipRecord&) { return ""; });
                              }),
               Contains("has no record constants.pkl"));
}

}  // namespace dslaunch
