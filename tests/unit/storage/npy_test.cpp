#include "storage/files/npy_file.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>

#include "base/error.h"
#include "base/fd.h"
#include "base/text_bytes.h"
#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::storage;

namespace {

std::string npy(const std::string& header, const std::string& data, char major = 1) {
    std::string out = std::string("\x93NUMPY") + major + '\0';
    const auto length = static_cast<uint32_t>(header.size());
    out.append(reinterpret_cast<const char*>(&length), major == 1 ? 2 : 4);
    return out + header + data;
}

std::string dict(const std::string& descr, const std::string& shape,
                 const std::string& order = "False") {
    return "{'descr': " + descr + ", 'fortran_order': " + order + ", 'shape': " + shape + ", }\n";
}

std::string ones(int rank) {
    std::string out;
    for (int i = 0; i < rank; ++i) out += "1,";
    return out;
}

}  // namespace

TEST_CASE("each numeric dtype, shape and version is read as it was written") {
    struct Good {
        std::string file;
        DType dtype;
        std::vector<int64_t> shape;
        size_t bytes;
    };
    const Good table[] = {
        {npy(dict("'<f4'", "(2, 3)"), std::string(24, 'x')), DType::kF32, {2, 3}, 24},
        {npy(dict("'<f4'", "(2, 3)"), std::string(24, 'x'), 2), DType::kF32, {2, 3}, 24},
        {npy(dict("'<f4'", "(2,3,)"), std::string(24, 'x'), 3), DType::kF32, {2, 3}, 24},
        {npy(dict("'<f8'", "()"), std::string(8, 'x')), DType::kF64, {}, 8},
        {npy(dict("'<f2'", "(3,)"), std::string(6, 'x')), DType::kF16, {3}, 6},
        {npy(dict("'<i8'", "(0, 5)"), ""), DType::kI64, {0, 5}, 0},
        {npy(dict("'<u8'", "(1,)"), std::string(8, 'x')), DType::kU64, {1}, 8},
        {npy(dict("'<i4'", "(1,)"), std::string(4, 'x')), DType::kI32, {1}, 4},
        {npy(dict("'<u4'", "(1,)"), std::string(4, 'x')), DType::kU32, {1}, 4},
        {npy(dict("'<i2'", "(1,)"), std::string(2, 'x')), DType::kI16, {1}, 2},
        {npy(dict("'<u2'", "(1,)"), std::string(2, 'x')), DType::kU16, {1}, 2},
        {npy(dict("'|i1'", "(1,)"), "x"), DType::kI8, {1}, 1},
        {npy(dict("'|u1'", "(1,)"), "x"), DType::kU8, {1}, 1},
        {npy(dict("'|b1'", "(1,)"), "\1"), DType::kBool, {1}, 1},
        {npy("{\"shape\":(1,),\"descr\":\"<f4\",\"fortran_order\":False}", "1234"),
         DType::kF32,
         {1},
         4},
    };
    for (const Good& good : table) {
        INFO("row " << (&good - table));
        const NpyArray array = parse_npy("x.npy", bytes_in(good.file));
        REQUIRE(array.dtype == good.dtype);
        REQUIRE(array.shape == good.shape);
        REQUIRE(array.bytes.size() == good.bytes);
        REQUIRE(array.bytes.data() + good.bytes == bytes_in(good.file).data() + good.file.size());
    }
}

TEST_CASE("each hostile or unsupported .npy file gets its message") {
    struct Bad {
        std::string file, message;
    };
    const std::string four = "1234";
    const Bad table[] = {
        {"", "does not begin"},
        {"\x93NUMP", "does not begin"},
        {"\x93NUMPY\1", "does not begin"},
        {npy(dict("'<f4'", "(1,)"), four).substr(0, 20), "cut short"},
        {npy(dict("'<f4'", "(1,)"), four, 2).substr(0, 11), "cut short"},
        {npy(dict("'<f4'", "(1,)"), four, 4), "version 4.0"},
        {npy(std::string(70000, ' '), "", 2), "too long"},
        {npy("", ""), "'{' is missing"},
        {npy("{", ""), "quoted word is missing"},
        {npy("{}", ""), "needs descr"},
        {npy("{'descr", ""), "not closed"},
        {npy("{'descr'", ""), "':' is missing"},
        {npy("{'descr': '<f4' 'shape': (1,)}", four), "'}' is missing"},
        {npy("{'descr': '<f4', 'fortran_order': False}", four), "needs descr"},
        {npy("{'descr': '<f4', 'descr': '<f4'}", four), "'descr' twice"},
        {npy("{'shape': (1,), 'shape': (1,)}", four), "'shape' twice"},
        {npy("{'size': 1}", four), "unknown key 'size'"},
        {npy(dict("'<f4'", "(1,)") + "x", four), "has more text after"},
        {npy(dict("'<f4'", "(1,)", "True"), four), "Fortran order"},
        {npy(dict("'<f4'", "(1,)", "1"), four), "neither True nor False"},
        {npy(dict("'|O'", "(1,)"), four), "Python objects"},
        {npy(dict("'>f4'", "(1,)"), four), "big-endian"},
        {npy(dict("'<c8'", "(1,)"), four), "complex"},
        {npy(dict("'<U1'", "(1,)"), four), "text"},
        {npy(dict("'|S4'", "(1,)"), four), "text"},
        {npy(dict("'<M8[s]'", "(1,)"), four), "dates"},
        {npy(dict("'|V2'", "(2,)"), four), "raw bytes"},
        {npy(dict("'<f16'", "(1,)"), four), "'<f16'"},
        {npy(dict("''", "(1,)"), four), "not a NumPy dtype"},
        {npy(dict("[('a', '<f4')]", "(1,)"), four), "structured"},
        {npy(dict("'<f4'", "1"), four), "'(' is missing"},
        {npy(dict("'<f4'", "(1)"), four), "not a tuple"},
        {npy(dict("'<f4'", "(1 1)"), four), "not a tuple"},
        {npy(dict("'<f4'", "(-1,)"), four), "not a size"},
        {npy(dict("'<f4'", "(1.0,)"), four), "not a tuple"},
        {npy(dict("'<f4'", "(,)"), four), "not a size"},
        {npy(dict("'<f4'", "(9223372036854775808,)"), four), "not a size"},
        {npy(dict("'<f4'", "(4294967296, 4294967296)"), four), "overflows"},
        {npy(dict("'<f4'", "(9223372036854775807,)"), four), "overflows"},
        {npy(dict("'<f4'", "(" + ones(65) + ")"), four), "too many dimensions"},
        {npy(dict("'<f4'", "(2,)"), four), "needs 8 bytes of data, but the file has 4"},
        {npy(dict("'<f4'", "(1,)"), four + "5"), "needs 4 bytes of data, but the file has 5"},
        {npy(dict("'\x1b[2J'", "(1,)"), four), "\\x1b"},
    };
    for (const Bad& bad : table) {
        std::string message = "no error";
        try {
            (void)parse_npy("x.npy", bytes_in(bad.file));
        } catch (const Error& error) {
            REQUIRE(error.code() == ExitCode::kInput);
            message = error.what();
        }
        INFO("row " << (&bad - table) << ": wanted '" << bad.message << "' got '" << message
                    << "'");
        REQUIRE(message.find("x.npy: ") == 0);
        REQUIRE(message.find(bad.message) != std::string::npos);
    }
}

TEST_CASE("a file that NumPy saved is read") {
    const std::string path = "/tmp/dsl_npy_test." + std::to_string(::getpid()) + ".npy";
    const std::string script =
        "import sys, numpy; numpy.save(sys.argv[1], "
        "numpy.arange(6, dtype=\"<i4\").reshape(2, 3))";
    if (std::system(("python3 -c '" + script + "' " + path + " 2>/dev/null").c_str()) != 0) {
        std::cout << "SKIPPED: a file of NumPy's because python3 with numpy is not installed\n";
        return;
    }
    const NpyFile file(path);
    std::remove(path.c_str());
    REQUIRE(file.array().dtype == DType::kI32);
    REQUIRE(file.array().shape == std::vector<int64_t>{2, 3});
    const int32_t expected[] = {0, 1, 2, 3, 4, 5};
    REQUIRE(std::memcmp(file.array().bytes.data(), expected, sizeof(expected)) == 0);
}
