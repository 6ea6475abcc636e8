#include "runtime/data/data_source.h"

#include <vector>

#include "data_files.h"
#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::config;
using namespace dslaunch::runtime;

namespace {

using Ints = std::vector<int64_t>;
using Floats = std::vector<float>;

const std::string kFixtures = test::fixture_path("data/");

}  // namespace

TEST_CASE("sample i of a token file is tokens [iT, iT + T) and the same shifted by one") {
    const DataFolder folder;
    const DataSets sets = open_data(token_request(folder.counting_tokens("t.bin", 600), 4));
    REQUIRE(sets.train.rows() == 149);  // (600 - 1) / 4
    REQUIRE(!sets.eval);
    REQUIRE(sets.train.tokens_per_sample() == 4);
    const auto batch = sets.train.batch(Ints{148, 0, 64});
    REQUIRE(batch.size() == 2);
    REQUIRE(shape_of(batch[0]) == Ints{3, 4});
    REQUIRE(values_of<int64_t>(batch[0]) ==
            Ints{592, 593, 594, 595, 0, 1, 2, 3, 256, 257, 258, 259});
    REQUIRE(values_of<int64_t>(batch[1]) ==
            Ints{593, 594, 595, 596, 1, 2, 3, 4, 257, 258, 259, 260});
}

TEST_CASE("the last token of a file is a target and never the start of a sample") {
    const DataFolder folder;
    for (const auto& [tokens, samples] :
         std::vector<std::pair<int, int64_t>>{{5, 1}, {8, 1}, {9, 2}, {12, 2}, {13, 3}}) {
        const DataSets sets = open_data(token_request(folder.counting_tokens("t", tokens), 4));
        REQUIRE(sets.train.rows() == samples);
        REQUIRE(values_of<int64_t>(sets.train.batch(Ints{samples - 1})[1]).back() == 4 * samples);
    }
}

TEST_CASE("uint32 tokens are read where the config says so") {
    const DataFolder folder;
    DataRequest request =
        token_request(folder.bytes("t.bin", std::string("\1\0\1\0\2\0\0\0\3\0\0\x80", 12)), 2);
    request.data.token_dtype = DType::kU32;
    const auto batch = open_data(request).train.batch(Ints{0});
    REQUIRE(values_of<int64_t>(batch[0]) == Ints{0x10001, 2});
    REQUIRE(values_of<int64_t>(batch[1]) == Ints{2, 0x80000003});
}

TEST_CASE("a fraction of the samples is held out at the end, and the two parts share none") {
    const DataFolder folder;
    DataRequest request = token_request(folder.counting_tokens("t.bin", 41), 4);
    request.data.eval_fraction = 0.25;
    const DataSets sets = open_data(request);
    REQUIRE(sets.train.rows() == 8);
    REQUIRE(sets.eval->rows() == 2);
    REQUIRE(values_of<int64_t>(sets.train.batch(Ints{7})[0]) == Ints{28, 29, 30, 31});
    REQUIRE(values_of<int64_t>(sets.eval->batch(Ints{0, 1})[0]) ==
            Ints{32, 33, 34, 35, 36, 37, 38, 39});
}

TEST_CASE("an eval file is read whole beside the training file") {
    const DataFolder folder;
    DataRequest request = token_request(folder.counting_tokens("train.bin", 41), 4);
    request.data.eval_path = folder.bytes("eval.bin", std::string("\7\0\7\0\7\0\7\0\7\0", 10));
    const DataSets sets = open_data(request);
    REQUIRE(sets.train.rows() == 10);
    REQUIRE(sets.eval->rows() == 1);
    REQUIRE(values_of<int64_t>(sets.eval->batch(Ints{0})[1]) == Ints{7, 7, 7, 7});
}

TEST_CASE("columns meet arguments by name, by choice, and the last of each pair up") {
    const DataFolder folder;
    const Floats x{0, 1, 10, 11, 20, 21};
    const Ints y{5, 6, 7};
    const std::string path = folder.rows(
        "d.safetensors", {column("x", DType::kF32, {3, 2}, x), column("y", DType::kI64, {3}, y)});
    struct Case {
        std::vector<std::string> arguments;
        std::map<std::string, std::string> columns;
        std::string target;
        bool x_first;
    };
    for (const Case& c : std::vector<Case>{{{"x", "y"}, {}, "", true},
                                           {{"y", "x"}, {}, "", false},
                                           {{"x", "labels"}, {}, "", true},
                                           {{"input", "y"}, {}, "", true},
                                           {{"input", "y"}, {}, "y", true},
                                           {{"a", "b"}, {{"a", "x"}, {"b", "y"}}, "", true},
                                           {{"a", "b"}, {{"b", "x"}}, "", false},
                                           {{"x", "y"}, {{"x", "y"}, {"y", "x"}}, "", false},
                                           {{"input", "class"}, {{"class", "y"}}, "class", true}}) {
        CAPTURE(c.arguments, c.columns);
        DataRequest request = request_for(path, c.arguments);
        request.data.columns = c.columns;
        if (!c.target.empty()) request.loss = {.kind = LossKind::kCrossEntropy, .target = c.target};
        const auto batch = open_data(request).train.batch(Ints{2, 0});
        REQUIRE(values_of<float>(batch[c.x_first ? 0 : 1]) == Floats{20, 21, 0, 1});
        REQUIRE(values_of<int64_t>(batch[c.x_first ? 1 : 0]) == Ints{7, 5});
    }
}

TEST_CASE("the one column that forward leaves is the target of a loss that names none") {
    const DataFolder folder;
    const std::string path = folder.rows(
        "d.safetensors", {column("x", DType::kF32, {3, 2}, Floats{0, 1, 10, 11, 20, 21}),
                          column("y", DType::kI64, {3}, Ints{5, 6, 7}),
                          column("z", DType::kI64, {3}, Ints{8, 9, 8})});
    DataRequest request = request_for(path, {"x", "z", ""});
    request.loss = {.kind = LossKind::kCrossEntropy, .target = ""};
    CHECK(values_of<int64_t>(open_data(request).train.batch(Ints{2, 0})[2]) == Ints{7, 5});
    CHECK(open_data(request).train.target_choice() == "'y' I64 [3]");
    request.arguments.back() = request.loss.target = "y";
    CHECK(open_data(request).train.target_choice().empty());
}

TEST_CASE("among several columns the target of a loss is the only one of its type") {
    const DataFolder folder;
    const std::string path = folder.rows(
        "d.safetensors", {column("pixels", DType::kF32, {3, 2}, Floats{0, 1, 10, 11, 20, 21}),
                          column("weight", DType::kF64, {3}, std::vector<double>{0.5, 0.25, 2}),
                          column("class", DType::kU8, {3}, std::vector<uint8_t>{5, 6, 7}),
                          column("id", DType::kI32, {3}, std::vector<int32_t>{8, 9, 8})});
    struct Case {
        std::vector<std::string> arguments;  // of forward
        LossKind loss;
        std::string choice;  // the column, or the words of the error
    };
    const std::string unsaid =
        ": dslaunch.loss.target does not say which column contains the target of the loss, and ";
    const std::string has =
        ": the file has the columns pixels, weight, class, id; forward takes the arguments ";
    const std::string last = ", (the loss's target)";
    for (const Case& c : std::vector<Case>{
             {{"pixels", "weight", "id"}, LossKind::kCrossEntropy, "'class' U8 [3]"},
             {{"input", "weight", "id"}, LossKind::kCrossEntropy, "'class' U8 [3]"},
             {{"pixels", "id", "input"}, LossKind::kMse, "'weight' F64 [3]"},
             {{"pixels", "id", "class"}, LossKind::kL1, "'weight' F64 [3]"},
             {{"pixels", "weight", "class"}, LossKind::kBceWithLogits, "'id' I32 [3]"},
             {{"pixels", "weight"},
              LossKind::kCrossEntropy,
              unsaid +
                  "2 of the remaining columns contain class numbers (integers): class, id. Name "
                  "the column, for example with --set dslaunch.loss.target=class" +
                  has + "pixels, weight" + last},
             {{"class", "input"},
              LossKind::kMse,
              unsaid +
                  "2 of the remaining columns contain floats: pixels, weight. Name the column, for "
                  "example with --set dslaunch.loss.target=pixels" +
                  has + "class, input" + last},
             {{"pixels", "weight"},
              LossKind::kBceWithLogits,
              unsaid +
                  "the remaining columns (class, id) contain no floats. Name the column, for "
                  "example with --set dslaunch.loss.target=class" +
                  has + "pixels, weight" + last},
             {{"pixels", "weight", "class", "id"},
              LossKind::kMse,
              unsaid +
                  "no column is left. Name the column, for example with --set "
                  "dslaunch.loss.target=COLUMN" +
                  has + "pixels, weight, class, id" + last +
                  "; if forward returns the loss itself, remove --loss or dslaunch.loss"},
             {{"pixels", "id"},
              LossKind::kCrossEntropy,
              ": each argument of forward has a column, but forward does not take weight. To "
              "ignore columns, name only the columns that forward takes: --set "
              "dslaunch.data.columns.pixels=pixels --set dslaunch.data.columns.id=id --set "
              "dslaunch.loss.target=class --set dslaunch.data.columns.class=class"}}) {
        CAPTURE(c.arguments, c.choice);
        std::vector<std::string> arguments = c.arguments;
        arguments.emplace_back();
        DataRequest request = request_for(path, arguments);
        request.loss = {.kind = c.loss, .target = ""};
        std::string got;
        try {
            got = open_data(request).train.target_choice();
        } catch (const Error& error) {
            got = std::string(error.what()).substr(path.size());
        }
        CHECK(got == c.choice);
    }
}

TEST_CASE("a column may feed two arguments, and is left unread when all arguments are chosen") {
    const DataFolder folder;
    const Floats x{1, 2};
    const std::string path = folder.rows(
        "d.safetensors", {column("spare", DType::kF32, {2}, x), column("x", DType::kF32, {2}, x)});
    DataRequest request = request_for(path, {"input", "x"});
    request.data.columns = {{"input", "x"}, {"x", "x"}};
    request.loss = {.kind = LossKind::kMse, .target = "x"};
    const auto batch = open_data(request).train.batch(Ints{1});
    REQUIRE(values_of<float>(batch[0]) == Floats{2});
    REQUIRE(values_of<float>(batch[1]) == Floats{2});
}

TEST_CASE("rows of integers are tokens for a rate, pairs twice as many, and other rows are none") {
    const DataFolder folder;
    const std::vector<int64_t> tokens(12), labels(3);
    const std::vector<float> x(12);
    const std::string path = folder.rows(
        "d.safetensors",
        {column("tokens", DType::kI64, {3, 4}, tokens),
         column("pair", DType::kI64, {3, 2, 2}, tokens),
         column("image", DType::kI64, {3, 4, 1}, tokens), column("x", DType::kF32, {3, 4}, x),
         column("y", DType::kI64, {3}, labels), column("one", DType::kI64, {3, 1}, labels)});
    struct Row {
        const char* argument;
        int64_t read;
    };
    for (const Row& row : {Row{"tokens", 4}, Row{"pair", 4}, Row{"image", 0}, Row{"x", 0},
                           Row{"y", 0}, Row{"one", 0}}) {
        INFO(row.argument);
        DataRequest request = request_for(path, {row.argument});
        request.data.columns = {{row.argument, row.argument}};
        CHECK(open_data(request).train.tokens_read() == row.read);
        CHECK(open_data(request).train.tokens_per_sample() == 0);
    }
    DataRequest request = request_for(folder.counting_tokens("t.bin", 9), {"tokens", "targets"});
    request.data.context = 4;
    CHECK(open_data(request).train.tokens_read() == 4);
}

TEST_CASE("integers become int64, floats float32, and bool stays") {
    const DataFolder folder;
    const std::vector<uint8_t> u8{0, 255};
    const std::vector<int8_t> i8{-128, 127};
    const std::vector<int16_t> i16{-32768, 32767};
    const std::vector<uint16_t> u16{0, 65535};
    const std::vector<int32_t> i32{INT32_MIN, INT32_MAX};
    const std::vector<uint32_t> u32{0, UINT32_MAX};
    const std::vector<uint16_t> f16{0x3c00, 0xc500};   // 1, -5
    const std::vector<uint16_t> bf16{0x3f80, 0xc0a0};  // 1, -5
    const std::vector<double> f64{1, -5};
    const std::vector<uint8_t> flags{0, 2};  // any byte but 0 is true
    const std::string path = folder.rows(
        "d.safetensors",
        {column("u8", DType::kU8, {2}, u8), column("i8", DType::kI8, {2}, i8),
         column("i16", DType::kI16, {2}, i16), column("u16", DType::kU16, {2}, u16),
         column("i32", DType::kI32, {2}, i32), column("u32", DType::kU32, {2}, u32),
         column("f16", DType::kF16, {2}, f16), column("bf16", DType::kBF16, {2}, bf16),
         column("f64", DType::kF64, {2}, f64), column("flags", DType::kBool, {2}, flags)});
    const DataSets sets = open_data(
        request_for(path, {"u8", "i8", "i16", "u16", "i32", "u32", "f16", "bf16", "f64", "flags"}));
    const auto batch = sets.train.batch(Ints{0, 1});
    const std::vector<Ints> integers{
        {0, 255},       {-128, 127}, {-32768, 32767}, {0, 65535}, {INT32_MIN, INT32_MAX},
        {0, UINT32_MAX}};
    for (size_t i = 0; i < 6; ++i) REQUIRE(values_of<int64_t>(batch[i]) == integers[i]);
    for (size_t i = 6; i < 9; ++i) REQUIRE(values_of<float>(batch[i]) == Floats{1, -5});
    REQUIRE(!batch[9].toTensor()[0].item<bool>());
    REQUIRE(batch[9].toTensor()[1].item<bool>());
    REQUIRE(batch[9].toTensor().scalar_type() == c10::ScalarType::Bool);
}

TEST_CASE("the target of a loss that subtracts is float32 whatever the file holds") {
    const DataFolder folder;
    const Floats x{1, 2};
    const std::vector<uint8_t> y{0, 1};
    const std::string path = folder.rows(
        "d.safetensors", {column("x", DType::kF32, {2}, x), column("y", DType::kU8, {2}, y)});
    DataRequest request = request_for(path, {"x", "y"});
    for (const LossKind kind : {LossKind::kBceWithLogits, LossKind::kMse, LossKind::kL1}) {
        request.loss = {.kind = kind, .target = "y"};
        REQUIRE(values_of<float>(open_data(request).train.batch(Ints{0, 1})[1]) == Floats{0, 1});
    }
    request.loss = {.kind = LossKind::kCrossEntropy, .target = "y"};
    REQUIRE(values_of<int64_t>(open_data(request).train.batch(Ints{0, 1})[1]) == Ints{0, 1});
}

TEST_CASE("batches of several rows keep the columns' inner shapes") {
    const DataRequest request =
        request_for(kFixtures + "captions.safetensors", {"image", "text", "y"});
    const DataSets sets = open_data(request);
    REQUIRE(sets.train.rows() == 64);
    const auto batch = sets.train.batch(Ints{3, 1, 4, 1, 5});
    REQUIRE(shape_of(batch[0]) == Ints{5, 1, 8, 8});
    REQUIRE(shape_of(batch[1]) == Ints{5, 12});
    REQUIRE(shape_of(batch[2]) == Ints{5});
    REQUIRE(batch[0].toTensor()[1].equal(batch[0].toTensor()[3]));
    REQUIRE(!batch[0].toTensor()[0].equal(batch[0].toTensor()[1]));
}

TEST_CASE("held-out rows are the last ones of the file") {
    DataRequest request = request_for(kFixtures + "captions.safetensors", {"image", "text", "y"});
    const DataSets whole = open_data(request);
    request.data.eval_fraction = 0.25;
    const DataSets split = open_data(request);
    REQUIRE(split.train.rows() == 48);
    REQUIRE(split.eval->rows() == 16);
    const auto expected = whole.train.batch(Ints{48, 63});
    const auto held = split.eval->batch(Ints{0, 15});
    for (size_t i = 0; i < 3; ++i) REQUIRE(held[i].toTensor().equal(expected[i].toTensor()));
}

TEST_CASE("a .npy array is one column with the file's name, for a model of one argument") {
    const DataFolder folder;
    std::string header = "{'descr': '<i2', 'fortran_order': False, 'shape': (3, 2), }";
    header.resize(117, ' ');
    const std::string npy = std::string("\x93NUMPY\1\0\x76\0", 10) + header + "\n" +
                            std::string("\0\0\1\0\2\0\xff\xff\4\0\5\0", 12);
    DataRequest request = request_for(folder.bytes("image.npy", npy), {"input"});
    const DataSets sets = open_data(request);
    REQUIRE(sets.train.rows() == 3);
    REQUIRE(values_of<int64_t>(sets.train.batch(Ints{1, 0})[0]) == Ints{2, -1, 0, 1});
    request.data.columns = {{"input", "image"}};
    REQUIRE(open_data(request).train.rows() == 3);
    request.data.context = 2;
    CHECK_THROWS_WITH(open_data(request),
                      Catch::Contains("or use a token file: numpy.load(file).astype(\"uint16\")"));
}

TEST_CASE("an array of tokens is refused with the commands that make data of it") {
    const DataFolder folder;
    const auto array = [&](const char* name, const std::string& type, const std::string& shape,
                           const std::string& data) {
        std::string header =
            fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': {}, }}", type, shape);
        header.resize(117, ' ');
        return folder.bytes(name, std::string("\x93NUMPY\1\0\x76\0", 10) + header + "\n" + data);
    };
    DataRequest request = request_for(array("rows.npy", "<i2", "(1, 2)", std::string(4, '\1')),
                                      {"tokens", "targets"});
    const std::string place = folder / "";
    CHECK_THROWS_WITH(
        open_data(request),
        Catch::Contains("rows.npy: is a single array, but the model reads tokens and targets") &&
            Catch::Contains(fmt::format(
                "python3 -c 'import numpy, safetensors.numpy as s; r = numpy.load(\"{0}rows.npy\")"
                ".astype(\"int64\"); s.save_file({{\"tokens\": r[:, :-1].copy(), \"targets\": "
                "r[:, 1:].copy()}}, \"{0}rows.safetensors\")', then give --data "
                "{0}rows.safetensors",
                place)));
    // The 70,000 needs 32 bits.
    request.data.train_path =
        array("flat.npy", "<i4", "(2,)", std::string("\1\0\0\0\x70\x11\1\0", 8));
    CHECK_THROWS_WITH(
        open_data(request),
        Catch::Contains(fmt::format(
            "python3 -c 'import numpy; numpy.load(\"{0}flat.npy\").astype(\"uint32\")"
            ".tofile(\"{0}flat.tokens\")', then give --data {0}flat.tokens --context N --set "
            "dslaunch.data.dtype=uint32",
            place)));
    request.data.train_path = array("small.npy", "<i8", "(1,)", std::string("\1\0\0\0\0\0\0\0", 8));
    CHECK_THROWS_WITH(open_data(request), Catch::EndsWith("small.tokens --context N"));
    // Floats are no tokens, and other models read other columns.
    request.data.train_path = array("floats.npy", "<f4", "(1,)", std::string(4, '\0'));
    CHECK_THROWS_WITH(open_data(request), !Catch::Contains("python3"));
    request = request_for(folder / "rows.npy", {"x", "y"});
    CHECK_THROWS_WITH(open_data(request), !Catch::Contains("python3"));
}

TEST_CASE("the digits and the King James text of the fixtures are read as they were written") {
    DataRequest digits = request_for(kFixtures + "digits.safetensors", {"input", "y"});
    digits.loss = {.kind = LossKind::kCrossEntropy, .target = "y"};
    const DataSets rows = open_data(digits);
    const auto first = rows.train.batch(Ints{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
    REQUIRE(values_of<int64_t>(first[1]) == Ints{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
    const Floats pixels = values_of<float>(rows.train.batch(Ints{191})[0]);
    REQUIRE(Floats(pixels.begin(), pixels.begin() + 5) == Floats{0, 0, 0.9375F, 0.9375F, 0.125F});
    rows.check_labels(digits, 10);

    const DataSets text = open_data(token_request(kFixtures + "kjv.u16.bin", 32));
    REQUIRE(text.train.rows() == 624);
    std::string start;
    for (const int64_t letter : values_of<int64_t>(text.train.batch(Ints{0})[0]))
        start.push_back(static_cast<char>(letter));
    REQUIRE(start == "Ge1:1 In the beginning God creat");
    text.check_vocabulary(128);
}

TEST_CASE("traced arguments with a shape and optional tensors count as tensors") {
    const DataFolder folder;
    DataRequest request = token_request(folder.counting_tokens("t.bin", 9), 4);
    request.argument_types = {c10::TensorType::createContiguous(at::kLong, at::kCPU, {1, 4}),
                              c10::OptionalType::create(c10::TensorType::get())};
    REQUIRE(open_data(request).train.rows() == 2);
}
