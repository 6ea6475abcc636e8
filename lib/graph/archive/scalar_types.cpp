#include "graph/archive/scalar_types.h"

#include <ATen/core/Tensor.h>

#include "base/check.h"
#include "base/error.h"

namespace dslaunch::graph {

at::ScalarType scalar_type_of(DType dtype) {
    switch (dtype) {
        case DType::kF32:
            return at::kFloat;
        case DType::kBF16:
            return at::kBFloat16;
        case DType::kF16:
            return at::kHalf;
        case DType::kF64:
            return at::kDouble;
        case DType::kC64:
            return at::kComplexFloat;
        case DType::kBool:
            return at::kBool;
        case DType::kU8:
            return at::kByte;
        case DType::kI8:
            return at::kChar;
        case DType::kI16:
            return at::kShort;
        case DType::kI32:
            return at::kInt;
        case DType::kI64:
            return at::kLong;
        case DType::kU16:
            return at::kUInt16;
        case DType::kU32:
            return at::kUInt32;
        case DType::kU64:
            return at::kUInt64;
    }
    DSL_CHECK(false, "dtype {}", static_cast<int>(dtype));
}

bool is_trained_type(at::ScalarType dtype) {
    return dtype == at::kFloat || dtype == at::kHalf || dtype == at::kBFloat16;
}

DType dtype_of(const std::string& name, const at::Tensor& tensor) {
    for (size_t d = 0; d < detail::kDTypeRows.size(); ++d)
        if (scalar_type_of(static_cast<DType>(d)) == tensor.scalar_type())
            return static_cast<DType>(d);
    fail(ExitCode::kInput,
         "{} is {}, which safetensors cannot hold, and so no checkpoint; save the model with {}",
         name, c10::toString(tensor.scalar_type()),
         tensor.scalar_type() == at::kComplexDouble ? ".to(torch.complex64) of it"
                                                    : "another type of it");
}

}  // namespace dslaunch::graph
