// Data with every kind of mistake, and the message that each must give.
#include <functional>
#include <vector>

#include "data_files.h"
#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::config;
using namespace dslaunch::runtime;
using namespace dslaunch::storage;

namespace {

using Ints = std::vector<int64_t>;

const std::vector<float> kSix{0, 1, 2, 3, 4, 5};
const Ints kLabels{3, -100, 4};

// Returns the message of CALL's error, with DIR instead of FOLDER's path.
std::string message_of(const DataFolder& folder, const std::function<void()>& call) {
    try {
        call();
    } catch (const Error& error) {
        REQUIRE(error.code() == ExitCode::kInput);
        std::string text = error.what();
        const std::string prefix = folder / "";
        for (size_t at = text.find(prefix); at != std::string::npos; at = text.find(prefix))
            text.replace(at, prefix.size(), "DIR/");
        return text;
    }
    return "";
}

std::string opening(const DataFolder& folder, const DataRequest& request) {
    return message_of(folder, [&] { (void)open_data(request); });
}

std::string rows_file(const DataFolder& folder) {
    return folder.rows("d.safetensors", {column("x", DType::kF32, {3, 2}, kSix),
                                         column("y", DType::kI64, {3}, kLabels)});
}

}  // namespace

TEST_CASE("a token file that cannot be used says why") {
    const DataFolder folder;
    REQUIRE(opening(folder, request_for("", {"a", "b"})) ==
            "no training data: name a file in dslaunch.data.train or with --data");
    struct Case {
        std::string name;
        std::string content;
        int64_t context;
        std::string message;
    };
    for (const Case& c :
         std::vector<Case>{{"empty.bin", "", 4, "DIR/empty.bin: the token file is empty"},
                           {"odd.bin", "abc", 4,
                            "DIR/odd.bin: 3 bytes are not a whole number of uint16 tokens; is "
                            "dslaunch.data.dtype right, or was the file cut off?"},
                           {"short.bin", "abcdefgh", 4,
                            "DIR/short.bin: 4 tokens are too few for a sample: a context of 4 "
                            "tokens needs 5, including the last target; use more data or a smaller "
                            "dslaunch.data.context (--context)"},
                           {"unset.bin", "abcdefgh", 0,
                            "DIR/unset.bin: the number of tokens in a sample is not set; use "
                            "dslaunch.data.context or --context"}}) {
        const std::string path = folder.bytes(c.name, c.content);
        REQUIRE(opening(folder, token_request(path, c.context)) == c.message);
    }
    REQUIRE(opening(folder, token_request(folder / "none.bin", 0)) ==
            "DIR/none.bin: cannot open: No such file or directory (ENOENT)");
    std::filesystem::create_directory(folder / "tokens");
    REQUIRE(opening(folder, token_request(folder / "tokens", 4)) ==
            "DIR/tokens: is a folder, but a file is expected");
}

TEST_CASE("a token file that does not fit forward's arguments says both") {
    const DataFolder folder;
    const DataRequest good = token_request(folder.counting_tokens("t.bin", 9), 4);
    DataRequest request = good;
    request.arguments = {"tokens", "mask", "targets"};
    request.argument_types.push_back(c10::TensorType::get());
    REQUIRE(opening(folder, request) ==
            "DIR/t.bin: a token file supplies two tensors (the tokens, and the tokens shifted by "
            "one), but forward and its loss take 3: tokens, mask, targets; use a .safetensors file "
            "with a column for each");
    request = good;
    request.arguments = {"tokens"};
    request.argument_types.pop_back();
    REQUIRE_THAT(opening(folder, request), Catch::Contains("take 1: tokens;"));
    request = good;
    request.argument_types[1] = c10::IntType::get();
    REQUIRE(opening(folder, request) ==
            "DIR/t.bin: forward's argument 'targets' is int, but data supply only tensors; give it "
            "a default value in the model");
    request = good;
    request.data.columns = {{"tokens", "x"}};
    REQUIRE(opening(folder, request) ==
            "DIR/t.bin: a token file has no columns, but dslaunch.data.columns names 'x'; columns "
            "are for .safetensors and .npy");
    request = good;
    request.loss = {.kind = LossKind::kMse, .target = "y"};
    REQUIRE_THAT(opening(folder, request),
                 Catch::Contains("which only the loss cross_entropy accepts"));
}

TEST_CASE("a token outside the vocabulary is named with its position, in either file") {
    const DataFolder folder;
    DataRequest request = token_request(folder.counting_tokens("t.bin", 300), 4);
    const DataSets one = open_data(request);
    REQUIRE(message_of(folder, [&] { one.check_vocabulary(256); }) ==
            "DIR/t.bin: token 256 at position 256 is outside the model's vocabulary (0 to 255); "
            "were these "
            "tokens made for this model, and is dslaunch.data.dtype right?");
    REQUIRE(message_of(folder, [&] { one.check_vocabulary(300); }).empty());
    REQUIRE_THAT(
        message_of(
            folder,
            [&] { one.check_indices("targets", {.count = 299, .also = -100, .what = "class"}); }),
        Catch::Contains("token 299 at position 299 is not a valid class (0 to 298);"));
    request.data.eval_path = folder.counting_tokens("held.bin", 302);
    const DataSets two = open_data(request);
    REQUIRE_THAT(message_of(folder, [&] { two.check_vocabulary(300); }),
                 Catch::Contains("DIR/held.bin: token 300 at position 300"));
}

TEST_CASE("a held-out part that cannot be is refused") {
    const DataFolder folder;
    DataRequest request = token_request(folder.counting_tokens("t.bin", 41), 4);
    request.data.eval_fraction = 0.09;
    REQUIRE(opening(folder, request) ==
            "DIR/t.bin: dslaunch.data.eval_fraction 0.09 of 10 samples holds out no sample; use "
            "0.11 or more, name a file in dslaunch.data.eval, or hold out nothing: --set "
            "dslaunch.data.eval_fraction=0");
    request.data.eval_fraction = 0;
    request.data.eval_path = folder / "gone.bin";
    REQUIRE_THAT(opening(folder, request), Catch::Contains("DIR/gone.bin: cannot open"));

    const Ints labels{1};
    const std::string held = folder.rows(
        "held.safetensors",
        {column("x", DType::kF32, {1, 6}, kSix), column("y", DType::kI64, {1}, labels)});
    DataRequest rows = request_for(rows_file(folder), {"x", "y"});
    rows.data.eval_path = held;
    REQUIRE(opening(folder, rows) ==
            "DIR/held.safetensors: argument 'x' gets samples of Float [6], but Float [2] when "
            "training on DIR/d.safetensors; held-out samples must have the type and shape of the "
            "training samples");
}

TEST_CASE("columns and arguments that do not meet are both listed") {
    const DataFolder folder;
    const std::string path = rows_file(folder);
    struct Case {
        std::vector<std::string> arguments;
        std::map<std::string, std::string> columns;
        std::string target;
        std::string message;
    };
    const std::string has = "the file has the columns x, y; forward takes the arguments ";
    const std::string say = ". Say which column feeds which argument (dslaunch.data.columns):";
    const std::string set = " --set dslaunch.data.columns.";
    const std::string start = "DIR/d.safetensors: ";
    const std::string left =
        start + "the columns do not match the arguments of forward. Unmatched: columns ";
    for (const Case& c : std::vector<Case>{
             {{"a", "b"},
              {},
              "",
              left + "x, y; arguments a, b. " + has + "a, b" + say + set + "a=COLUMN" + set +
                  "b=COLUMN"},
             {{"x"},
              {},
              "",
              start +
                  "each argument of forward has a column, but forward does not take y. To ignore "
                  "columns, name only the columns that forward takes:" +
                  set + "x=x"},
             {{"x", "y", "z"},
              {},
              "",
              left + "none; arguments z. " + has + "x, y, z" + say + set + "x=x" + set + "y=y" +
                  set + "z=COLUMN"},
             {{"x", "k", "m"},
              {},
              "",
              left + "y; arguments k, m. " + has + "x, k, m" + say + set + "x=x" + set +
                  "k=COLUMN" + set + "m=COLUMN"},
             {{"x", "labels"},
              {},
              "labels",
              start + "there is no column 'labels', which dslaunch.loss.target names: " + has +
                  "x, labels (the last is the loss target)"},
             {{"x", "y"},
              {{"z", "x"}},
              "",
              start + "dslaunch.data.columns names 'z', which is not an argument of forward: " +
                  has + "x, y"},
             {{"x", "y"},
              {{"x", "pixels"}},
              "",
              start +
                  "dslaunch.data.columns.x names 'pixels', which is not a column of the file: " +
                  has + "x, y"},
             {{}, {}, "", start + "forward takes no arguments, so it cannot use the data"}}) {
        DataRequest request = request_for(path, c.arguments);
        request.data.columns = c.columns;
        if (!c.target.empty()) request.loss = {.kind = LossKind::kCrossEntropy, .target = c.target};
        REQUIRE(opening(folder, request) == c.message);
    }
}

TEST_CASE("rows of another tool or another model are told what they are") {
    const DataFolder folder;
    const Ints numbers = {1, 2, 3, 900};
    const auto said = [&](const std::vector<std::string>& names) {
        std::vector<SafetensorsEntry> columns;
        for (const std::string& name : names)
            columns.push_back(column(name, DType::kI64, {2, 2}, numbers));
        return opening(folder,
                       request_for(folder.rows("d.safetensors", columns), {"tokens", "targets"}));
    };
    const std::string shift = "the target of each token must be the next token; in Python: ";
    CHECK_THAT(said({"input_ids", "labels"}),
               Catch::Contains("has the columns input_ids and") && Catch::Contains(shift));
    // Only a warning (usual_numbers_test.cpp), because some models shift the targets themselves.
    CHECK(said({"tokens", "targets"}).empty());
    CHECK_THAT(said({"tokens", "targets", "documents"}),
               Catch::Contains("does not take documents") &&
                   Catch::Contains("The rows contain tokens up to 900"));
}

TEST_CASE("columns whose shape or type cannot feed a model are named") {
    const DataFolder folder;
    const std::vector<uint64_t> big{1, 2, 3};
    const std::vector<float> none;
    const std::vector<float> one{1};
    const std::vector<float> two{1, 2};
    struct Case {
        SafetensorsEntry y;
        std::string message;
    };
    for (const Case& c : std::vector<Case>{
             {column("y", DType::kF32, {2}, two),
              "columns 'x' F32 [3, 2] and 'y' F32 [2] differ in their first dimension, the number "
              "of samples"},
             {column("y", DType::kF32, {}, one),
              "column 'y' F32 [] is a single number and has no rows"},
             {column("y", DType::kF32, {0, 2}, none), "column 'y' F32 [0, 2] has no rows"},
             {column("y", DType::kF32, {3, 0}, none),
              "the rows of column 'y' F32 [3, 0] are empty"},
             {column("y", DType::kU64, {3}, big),
              "the type of column 'y' U64 [3] is not supported: store it as I64, or as F32"}}) {
        const std::string path =
            folder.rows("c.safetensors", {column("x", DType::kF32, {3, 2}, kSix), c.y});
        REQUIRE(opening(folder, request_for(path, {"x", "y"})) ==
                "DIR/c.safetensors: " + c.message);
    }
    DataRequest request = request_for(rows_file(folder), {"y", "x"});
    request.loss = {.kind = LossKind::kCrossEntropy, .target = "x"};
    REQUIRE(opening(folder, request) ==
            "DIR/d.safetensors: the target column 'x' F32 [3, 2] does not contain integers, but "
            "the loss needs class numbers");
}

TEST_CASE("what holds no pairs of answers is refused for a loss of preferences, by name") {
    const DataFolder folder;
    const std::vector<int32_t> four(12, 1);
    const std::vector<float> logs(6, -1.0F);
    const SafetensorsEntry tokens = column("tokens", DType::kI32, {3, 2, 2}, four),
                           targets = column("targets", DType::kI32, {3, 2, 2}, four),
                           reference = column("reference", DType::kF32, {3, 2}, logs);
    const auto request_of = [&](const std::string& path, LossKind kind) {
        std::vector<std::string> arguments = {"tokens"};
        if (kind != LossKind::kSimPo) arguments.emplace_back("reference");
        arguments.emplace_back("targets");
        DataRequest request = request_for(path, arguments);
        request.loss = {.kind = kind, .target = "targets"};
        return request;
    };
    const auto said = [&](const std::vector<SafetensorsEntry>& columns, LossKind kind) {
        return opening(folder, request_of(folder.rows("p.safetensors", columns), kind));
    };
    CHECK(said({tokens, targets, reference}, LossKind::kDpo).empty());
    CHECK(said({tokens, targets}, LossKind::kSimPo).empty());
    CHECK(said({tokens, targets, reference}, LossKind::kSimPo).empty());
    CHECK(said({tokens, targets}, LossKind::kIpo) ==
          "DIR/p.safetensors: has no column 'reference' with the log-probabilities of the answers "
          "under the reference model; add it with `dslaunch eval MODEL --data DIR/p.safetensors "
          "--write-reference`");
    CHECK_THAT(said({column("tokens", DType::kI32, {3, 4}, four),
                     column("targets", DType::kI32, {3, 4}, four)},
                    LossKind::kDpo),
               Catch::Contains("--loss dpo needs pairs, but these rows are not pairs"));
    const std::vector<float> one(3, -1.0F);
    CHECK(said({tokens, targets, column("reference", DType::kF32, {3}, one)}, LossKind::kDpo) ==
          "DIR/p.safetensors: column 'reference' F32 [3] does not contain pairs for 'reference': "
          "the loss needs [samples, 2], which `dslaunch data prepare` makes from lines with the "
          "fields chosen and rejected");
    CHECK_THAT(
        said({column("tokens", DType::kI32, {3, 4}, four), targets, reference}, LossKind::kDpo),
        Catch::Contains("column 'tokens' I32 [3, 4] does not contain pairs for 'tokens'"));
    CHECK_THAT(
        said({tokens, column("targets", DType::kF32, {3, 2}, logs), reference}, LossKind::kDpo),
        Catch::Contains("the target column 'targets' F32 [3, 2] does not contain integers"));
    DataRequest plain = request_of(folder.counting_tokens("t.bin", 41), LossKind::kDpo);
    plain.data.context = 4;
    CHECK_THAT(opening(folder, plain), Catch::Contains("a token file has no pairs of answers"));
}

TEST_CASE("keys of token files beside a row file are refused, and so is a damaged file") {
    const DataFolder folder;
    DataRequest request = request_for(rows_file(folder), {"x", "y"});
    request.data.context = 8;
    REQUIRE(
        opening(folder, request) ==
        "DIR/d.safetensors: dslaunch.data.context (--context) is only for token files, but this "
        "file contains rows of fixed length; remove the key or option, or use a token file");
    request.data.context = 0;
    request.data.token_dtype = DType::kU16;
    REQUIRE_THAT(opening(folder, request),
                 Catch::Contains("dslaunch.data.dtype is only for token"));
    const std::string cut = folder.bytes("cut.safetensors", "abc");
    REQUIRE_THAT(
        opening(folder, request_for(cut, {"x", "y"})),
        Catch::Contains("DIR/cut.safetensors: ") && Catch::Contains("3 bytes are too few"));
    const std::string npy = folder.bytes("bad.npy", "abc");
    REQUIRE_THAT(opening(folder, request_for(npy, {"x"})),
                 Catch::Contains("DIR/bad.npy: not a .npy file"));
    REQUIRE_THAT(opening(folder, request_for(folder / "no.safetensors", {"x", "y"})),
                 Catch::Contains("DIR/no.safetensors: cannot open"));
}

TEST_CASE("tokens and rows are not mixed between training and held-out data") {
    const DataFolder folder;
    const std::string rows = rows_file(folder), tokens = folder.counting_tokens("t.bin", 41);
    for (const bool trains_rows : {true, false}) {
        DataRequest request = request_for(trains_rows ? rows : tokens, {"x", "y"});
        request.data.eval_path = trains_rows ? tokens : rows;
        for (const int64_t context : {0, 8}) {
            request.data.context = context;
            CHECK(opening(folder, request)
                      .starts_with(fmt::format(
                          "the training data and the held-out data must be of one kind, but "
                          "DIR/{} (--data) is a file of {}, and ",
                          trains_rows ? "d.safetensors" : "t.bin",
                          trains_rows ? "rows of fixed length" : "tokens")));
        }
    }
}

TEST_CASE("labels and indices out of range are named with row and element") {
    const DataFolder folder;
    DataRequest request = request_for(rows_file(folder), {"x", "y"});
    request.loss = {.kind = LossKind::kCrossEntropy, .target = "y"};
    const DataSets sets = open_data(request);
    REQUIRE(message_of(folder, [&] { sets.check_labels(request, 5); }).empty());
    REQUIRE(message_of(folder, [&] { sets.check_labels(request, 4); }) ==
            "DIR/d.safetensors: column 'y', row 2: 4 is not a valid class (0 to 3)");
    REQUIRE(message_of(folder, [&] {
                sets.check_indices("y", {.count = 9, .what = "row of wte"});
            }) == "DIR/d.safetensors: column 'y', row 1: -100 is not a valid row of wte (0 to 8)");
    REQUIRE(message_of(folder, [&] { sets.check_indices("x", {.count = 9, .what = "row"}); }) ==
            "DIR/d.safetensors: column 'x' is F32, but argument 'x' needs integers, because it "
            "uses them as row indices");
    const std::vector<uint8_t> ids{0, 1, 2, 3, 4, 50};
    const std::string path = folder.rows("i.safetensors", {column("ids", DType::kU8, {3, 2}, ids)});
    const DataSets indices = open_data(request_for(path, {"ids"}));
    REQUIRE(
        message_of(folder, [&] { indices.check_indices("ids", {.count = 50, .what = "row"}); }) ==
        "DIR/i.safetensors: column 'ids', row 2, element 1: 50 is not a valid row (0 to 49)");
}

TEST_CASE("rows of a tokenizer are said to be another tokenizer's if a model has no such token") {
    const DataFolder folder;
    const std::vector<int32_t> tokens{0, 1, 2, 3, 4, 50};
    const SafetensorsEntry entry = column("tokens", DType::kI32, {3, 2}, tokens);
    const std::string path = folder.rows("t.safetensors", {entry});
    const auto said = [&] {
        const DataSets sets = open_data(request_for(path, {"tokens"}));
        return message_of(folder,
                          [&] { sets.check_indices("tokens", {.count = 50, .what = "row"}); });
    };
    CHECK(said() ==
          "DIR/t.safetensors: column 'tokens', row 2, element 1: 50 is not a valid row (0 to 49)");
    storage::SafetensorsWriter writer(path, std::vector{entry}, {{"vocabulary", "0123"}});
    writer.write(0, entry.bytes);
    writer.commit();
    CHECK_THAT(said(), Catch::Contains("these rows were made with another model's tokenizer, but "
                                       "this model has 50 tokens"));
}
