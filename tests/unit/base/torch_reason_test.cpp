// Error texts that LibTorch 2.11 has written for such models (without their frames of C++), and the
// one line that is made from each.
#include "base/text/torch_reason.h"

#include <stdexcept>
#include <string>

#include "base/error.h"
#include "support/catch.h"

using namespace dslaunch;

namespace {

struct Row {
    const char* text;
    const char* reason;
};

// clang-format off
const Row kRows[] = {
    {"The following operation failed in the TorchScript interpreter.\n"
     "Traceback of TorchScript, serialized code (most recent call last):\n"
     "  File \"code/__torch__/model_file.py\", line 15, in forward\n"
     "    if torch.eq(kind, 0):\n"
     "      inner = self.inner\n"
     "      _2 = (inner).forward(x, )\n"
     "            ~~~~~~~~~~~~~~ <--- HERE\n"
     "    else:\n"
     "      if torch.eq(kind, 1):\n"
     "  File \"code/__torch__/model_file.py\", line 87, in forward\n"
     "    h = torch.mul(x, 2)\n"
     "    fc = self.fc\n"
     "    return (fc).forward(h, )\n"
     "            ~~~~~~~~~~~ <--- HERE\n"
     "  File \"code/__torch__/torch/nn/modules/linear.py\", line 14, in forward\n"
     "    weight = self.weight\n"
     "    bias = self.bias\n"
     "    return torch.linear(input, weight, bias)\n"
     "           ~~~~~~~~~~~~ <--- HERE\n"
     "\n"
     "Traceback of TorchScript, original code (most recent call last):\n"
     "  File \"/home/ann/model_file.py\", line 19, in forward\n"
     "    def forward(self, x, kind: int):\n"
     "        if kind == 0:\n"
     "            return self.inner(x)\n"
     "                   ~~~~~~~~~~ <--- HERE\n"
     "        if kind == 1:\n"
     "            return self.emb(x.long())\n"
     "  File \"/home/ann/model_file.py\", line 11, in forward\n"
     "    def forward(self, x):\n"
     "        h = x * 2\n"
     "        return self.fc(h)\n"
     "               ~~~~~~~ <--- HERE\n"
     "  File \"/usr/lib/python3/site-packages/torch/nn/modules/linear.py\", line 134, in forward\n"
     "        Runs the forward pass.\n"
     "        \"\"\"\n"
     "        return F.linear(input, self.weight, self.bias)\n"
     "               ~~~~~~~~ <--- HERE\n"
     "RuntimeError: mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)\n"
     "mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)\n"
     "Exception raised from meta at /pytorch/aten/src/ATen/native/LinearAlgebra.cpp:195 (most recent call first):\n"
     "C++ CapturedTraceback:\n"
     "#4 std::_Function_handler<std::shared_ptr<c10::LazyValue<std\n",
     "mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5), at /home/ann/model_file.py:11: return self.fc(h)"},
    {"The following operation failed in the TorchScript interpreter.\n"
     "Traceback of TorchScript, serialized code (most recent call last):\n"
     "  File \"code/__torch__/model_file.py\", line 19, in forward\n"
     "      if torch.eq(kind, 1):\n"
     "        emb = self.emb\n"
     "        _3 = (emb).forward(torch.to(x, 4), )\n"
     "              ~~~~~~~~~~~~ <--- HERE\n"
     "      else:\n"
     "        if torch.eq(kind, 2):\n"
     "  File \"code/__torch__/torch/nn/modules/sparse.py\", line 18, in forward\n"
     "    _0 = __torch__.torch.nn.functional.embedding\n"
     "    weight = self.weight\n"
     "    _1 = _0(input, weight, None, None, 2., False, False, )\n"
     "         ~~ <--- HERE\n"
     "    return _1\n"
     "  File \"code/__torch__/torch/nn/functional.py\", line 57, in embedding\n"
     "  else:\n"
     "    input0 = input\n"
     "  _7 = torch.embedding(weight, input0, padding_idx0, scale_grad_by_freq, sparse)\n"
     "       ~~~~~~~~~~~~~~~ <--- HERE\n"
     "  return _7\n"
     "\n"
     "Traceback of TorchScript, original code (most recent call last):\n"
     "  File \"/home/ann/model_file.py\", line 21, in forward\n"
     "            return self.inner(x)\n"
     "        if kind == 1:\n"
     "            return self.emb(x.long())\n"
     "                   ~~~~~~~~ <--- HERE\n"
     "        if kind == 2:\n"
     "            return torch.matmul(x.double(), self.inner.fc.weight.t())\n"
     "  File \"/usr/lib/python3/site-packages/torch/nn/modules/sparse.py\", line 189, in forward\n"
     "    def forward(self, input: Tensor) -> Tensor:\n"
     "        return F.embedding(\n"
     "               ~~~~~~~~~~~ <--- HERE\n"
     "            input,\n"
     "            self.weight,\n"
     "  File \"/usr/lib/python3/site-packages/torch/nn/functional.py\", line 2567, in embedding\n"
     "        # remove once script supports set_grad_enabled\n"
     "        _no_grad_embedding_renorm_(weight, input, max_norm, norm_type)\n"
     "    return torch.embedding(weight, input, padding_idx, scale_grad_by_freq, sparse)\n"
     "           ~~~~~~~~~~~~~~~ <--- HERE\n"
     "RuntimeError: index out of range in self\n"
     "index out of range in self\n"
     "Exception raised from operator() at /pytorch/aten/src/ATen/native/TensorAdvancedIndexing.cpp:1757 (most recent call first):\n"
     "C++ CapturedTraceback:\n"
     "#4 std::_Function_handler<std::shared_ptr<c10::LazyValue<std\n",
     "index out of range in self, at /home/ann/model_file.py:21: return self.emb(x.long())"},
    {"The following operation failed in the TorchScript interpreter.\n"
     "Traceback of TorchScript, serialized code (most recent call last):\n"
     "  File \"code/__torch__/model_file.py\", line 58, in forward\n"
     "                  if torch.eq(kind, 9):\n"
     "                    emb0 = self.emb\n"
     "                    _15 = (emb0).forward(x, )\n"
     "                           ~~~~~~~~~~~~~ <--- HERE\n"
     "                  else:\n"
     "                    if torch.eq(kind, 10):\n"
     "  File \"code/__torch__/torch/nn/modules/sparse.py\", line 18, in forward\n"
     "    _0 = __torch__.torch.nn.functional.embedding\n"
     "    weight = self.weight\n"
     "    _1 = _0(input, weight, None, None, 2., False, False, )\n"
     "         ~~ <--- HERE\n"
     "    return _1\n"
     "  File \"code/__torch__/torch/nn/functional.py\", line 57, in embedding\n"
     "  else:\n"
     "    input0 = input\n"
     "  _7 = torch.embedding(weight, input0, padding_idx0, scale_grad_by_freq, sparse)\n"
     "       ~~~~~~~~~~~~~~~ <--- HERE\n"
     "  return _7\n"
     "\n"
     "Traceback of TorchScript, original code (most recent call last):\n"
     "  File \"/home/ann/model_file.py\", line 37, in forward\n"
     "            return torch.cat([x, torch.zeros(1)], 0)\n"
     "        if kind == 9:\n"
     "            return self.emb(x)\n"
     "                   ~~~~~~~~ <--- HERE\n"
     "        if kind == 10:\n"
     "            y: Optional[Tensor] = None\n"
     "  File \"/usr/lib/python3/site-packages/torch/nn/modules/sparse.py\", line 189, in forward\n"
     "    def forward(self, input: Tensor) -> Tensor:\n"
     "        return F.embedding(\n"
     "               ~~~~~~~~~~~ <--- HERE\n"
     "            input,\n"
     "            self.weight,\n"
     "  File \"/usr/lib/python3/site-packages/torch/nn/functional.py\", line 2567, in embedding\n"
     "        # remove once script supports set_grad_enabled\n"
     "        _no_grad_embedding_renorm_(weight, input, max_norm, norm_type)\n"
     "    return torch.embedding(weight, input, padding_idx, scale_grad_by_freq, sparse)\n"
     "           ~~~~~~~~~~~~~~~ <--- HERE\n"
     "RuntimeError: Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, Int; but got torch.FloatTensor instead (while checking "
     "arguments for embedding)\n"
     "Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, Int; but got torch.FloatTensor instead (while checking arguments for "
     "embedding)\n"
     "Exception raised from checkScalarTypes at /pytorch/aten/src/ATen/TensorUtils.cpp:200 (most recent call first):\n"
     "C++ CapturedTraceback:\n"
     "#4 std::_Function_handler<std::shared_ptr<c10::LazyValue<std\n",
     "Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, Int; but got torch.FloatTensor instead (while checking arguments for "
     "embedding), at /home/ann/model_file.py:37: return self.emb(x)"},
    {"The following operation failed in the TorchScript interpreter.\n"
     "Traceback of TorchScript, serialized code (most recent call last):\n"
     "  File \"code/__torch__/model_file.py\", line 30, in forward\n"
     "        else:\n"
     "          if torch.eq(kind, 3):\n"
     "            _8 = torch.zeros([1000000000000, 1000])\n"
     "                 ~~~~~~~~~~~ <--- HERE\n"
     "            _7 = _8\n"
     "          else:\n"
     "\n"
     "Traceback of TorchScript, original code (most recent call last):\n"
     "  File \"/home/ann/model_file.py\", line 25, in forward\n"
     "            return torch.matmul(x.double(), self.inner.fc.weight.t())\n"
     "        if kind == 3:\n"
     "            return torch.zeros([1000000000000, 1000])\n"
     "                   ~~~~~~~~~~~ <--- HERE\n"
     "        if kind == 4:\n"
     "            raise ValueError(\"the batch must be even\")\n"
     "RuntimeError: [enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 4000000000000000 bytes. Error code"
     " 12 (Cannot allocate memory)\n"
     "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 4000000000000000 bytes. Error code 12 (Cannot al"
     "locate memory)\n"
     "C++ CapturedTraceback:\n"
     "#4 std::_Function_handler<std::shared_ptr<c10::LazyValue<std\n",
     "DefaultCPUAllocator: can't allocate memory: you tried to allocate 4000000000000000 bytes, at /home/ann/model_file.py:25: return torch.zeros([1000000000000, 1000"
     "])"},
    {"The following operation failed in the TorchScript interpreter.\n"
     "Traceback of TorchScript, serialized code (most recent call last):\n"
     "  File \"code/__torch__/model_file.py\", line 34, in forward\n"
     "          else:\n"
     "            if torch.eq(kind, 4):\n"
     "              ops.prim.RaiseException(\"the batch must be even\", \"builtins.ValueError\")\n"
     "              ~~~~~~~~~~~~~~~~~~~~~~~ <--- HERE\n"
     "            else:\n"
     "              pass\n"
     "\n"
     "Traceback of TorchScript, original code (most recent call last):\n"
     "  File \"/home/ann/model_file.py\", line 27, in forward\n"
     "            return torch.zeros([1000000000000, 1000])\n"
     "        if kind == 4:\n"
     "            raise ValueError(\"the batch must be even\")\n"
     "            ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~ <--- HERE\n"
     "        if kind == 5:\n"
     "            assert x.size(0) == 99, \"rows must be 99\"\n"
     "builtins.ValueError: the batch must be even\n",
     "ValueError: the batch must be even, at /home/ann/model_file.py:27: raise ValueError(\"the batch must be even\")"},
    {"The following operation failed in the TorchScript interpreter.\n"
     "Traceback of TorchScript, serialized code (most recent call last):\n"
     "  File \"code/__torch__/model_file.py\", line 42, in forward\n"
     "                pass\n"
     "              else:\n"
     "                ops.prim.RaiseException(\"AssertionError: rows must be 99\")\n"
     "                ~~~~~~~~~~~~~~~~~~~~~~~ <--- HERE\n"
     "            else:\n"
     "              pass\n"
     "\n"
     "Traceback of TorchScript, original code (most recent call last):\n"
     "  File \"/home/ann/model_file.py\", line 29, in forward\n"
     "            raise ValueError(\"the batch must be even\")\n"
     "        if kind == 5:\n"
     "            assert x.size(0) == 99, \"rows must be 99\"\n"
     "            ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~ <--- HERE\n"
     "        if kind == 6:\n"
     "            return x.view(7, 7)\n"
     "RuntimeError: AssertionError: rows must be 99\n",
     "AssertionError: rows must be 99, at /home/ann/model_file.py:29: assert x.size(0) == 99, \"rows must be 99\""},
    {"The following operation failed in the TorchScript interpreter.\n"
     "Traceback of TorchScript, serialized code (most recent call last):\n"
     "  File \"code/__torch__/model_file.py\", line 61, in forward\n"
     "                  else:\n"
     "                    if torch.eq(kind, 10):\n"
     "                      ops.prim.RaiseException(\"AssertionError: \")\n"
     "                      ~~~~~~~~~~~~~~~~~~~~~~~ <--- HERE\n"
     "                      _16 = _1\n"
     "                    else:\n"
     "\n"
     "Traceback of TorchScript, original code (most recent call last):\n"
     "  File \"/home/ann/model_file.py\", line 40, in forward\n"
     "        if kind == 10:\n"
     "            y: Optional[Tensor] = None\n"
     "            assert y is not None\n"
     "            ~~~~~~~~~~~~~~~~~~~~ <--- HERE\n"
     "            return y\n"
     "        return torch.nn.functional.cross_entropy(x, x.long()[:,0])\n"
     "RuntimeError: AssertionError: \n",
     "AssertionError, at /home/ann/model_file.py:40: assert y is not None"},
    {"\n"
     "Unknown builtin op: aten::mull.\n"
     "Here are some suggestions: \n"
     "\taten::full\n"
     "\taten::mul_\n"
     "\taten::mul\n"
     "\taten::roll\n"
     "\taten::fill\n"
     "\taten::all\n"
     "\n"
     "The original call is:\n"
     "  File \"code/__torch__/model_file.py\", line 85\n"
     "  def forward(self: __torch__.model_file.Inner,\n"
     "    x: Tensor) -> Tensor:\n"
     "    h = torch.mull(x, 2)\n"
     "        ~~~~~~~~~~ <--- HERE\n"
     "    fc = self.fc\n"
     "    return (fc).forward(h, )\n",
     "Unknown builtin op: aten::mull, at code/__torch__/model_file.py:85: h = torch.mull(x, 2)"},
    {"\n"
     "undefined value foo:\n"
     "  File \"<string>\", line 2\n"
     "def f(x):\n"
     "    return foo.bar(x)\n"
     "           ~~~ <--- HERE\n",
     "undefined value foo, at <string>:2: return foo.bar(x)"},
    {"[enforce fail at inline_container.cc:230] . Attempted to read a PyTorch file with version 99, but the maximum supported version for reading is 10. The version o"
     "f your PyTorch installation may be too old, please upgrade PyTorch to latest version to mitigate this issue.\n"
     "C++ CapturedTraceback:\n"
     "#4 std::_Function_handler<std::shared_ptr<c10::LazyValue<std\n",
     "Attempted to read a PyTorch file with version 99, but the maximum supported version for reading is 10"},
    {"[enforce fail at inline_container.cc:219] . Attempted to read a PyTorch file with version 0, but the minimum supported version for reading is 1. Your PyTorch sc"
     "ript module file is too old. Please regenerate it with latest version of PyTorch to mitigate this issue.\n"
     "C++ CapturedTraceback:\n"
     "#4 std::_Function_handler<std::shared_ptr<c10::LazyValue<std\n",
     "Attempted to read a PyTorch file with version 0, but the minimum supported version for reading is 1"},
    {"PytorchStreamReader failed locating file data.pkl: file not found. This is an internal miniz error. If you are seeing this error, there is a high likelihood tha"
     "t your checkpoint file is corrupted. This can happen if the checkpoint was not saved properly, was transferred incorrectly, or the file was modified after savin"
     "g.\n"
     "Exception raised from valid at /pytorch/caffe2/serialize/inline_container.cc:242 (most recent call first):\n"
     "C++ CapturedTraceback:\n"
     "#4 std::_Function_handler<std::shared_ptr<c10::LazyValue<std\n",
     "PytorchStreamReader failed locating file data.pkl: file not found"},
    {"Expected hasRecord(\"version\") to be true, but got false.  (Could this error message be improved?  If so, please report an enhancement request to PyTorch.)\n"
     "Exception raised from init at /pytorch/caffe2/serialize/inline_container.cc:207 (most recent call first):\n"
     "C++ CapturedTraceback:\n"
     "#4 std::_Function_handler<std::shared_ptr<c10::LazyValue<std\n",
     "Expected hasRecord(\"version\") to be true, but got false"},
    {"type.present() INTERNAL ASSERT FAILED at \"/pytorch/torch/csrc/jit/frontend/parser.cpp\":531, please report a bug to PyTorch. \n"
     "Exception raised from parseAssign at /pytorch/torch/csrc/jit/frontend/parser.cpp:531 (most recent call first):\n"
     "C++ CapturedTraceback:\n"
     "#4 std::_Function_handler<std::shared_ptr<c10::LazyValue<std\n",
     "LibTorch's internal check `type.present()` failed"},
    {"Unpickler found unknown torch global, 'torch.FloatStordel_file'\n"
     "Exception raised from readGlobal at /pytorch/torch/csrc/jit/serialization/unpickler.cpp:851 (most recent call first):\n"
     "C++ CapturedTraceback:\n"
     "#4 std::_Function_handler<std::shared_ptr<c10::LazyValue<std\n",
     "Unpickler found unknown torch global, 'torch.FloatStordel_file'"},
    {"PytorchStreamReader failed reading zip archive: failed finding central directory. This is an internal miniz error. If you are seeing this error, there is a high"
     " likelihood that your checkpoint file is corrupted. This can happen if the checkpoint was not saved properly, was transferred incorrectly, or the file was modif"
     "ied after saving.\n"
     "Exception raised from valid at /pytorch/caffe2/serialize/inline_container.cc:242 (most recent call first):\n"
     "C++ CapturedTraceback:\n"
     "#4 std::_Function_handler<std::shared_ptr<c10::LazyValue<std\n",
     "PytorchStreamReader failed reading zip archive: failed finding central directory"},
    {"[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 4000000000000000 bytes. Error code 12 (Cannot al"
     "locate memory)\n"
     "C++ CapturedTraceback:\n"
     "#4 std::_Function_handler<std::shared_ptr<c10::LazyValue<std\n",
     "DefaultCPUAllocator: can't allocate memory: you tried to allocate 4000000000000000 bytes"},
    {"expected m1 and m2 to have the same dtype, but got: c10::Half != float\n"
     "Exception raised from addmm_impl_cpu_ at /pytorch/aten/src/ATen/native/LinearAlgebra.cpp:1404 (most recent call first):\n"
     "C++ CapturedTraceback:\n"
     "#4 std::_Function_handler<std::shared_ptr<c10::LazyValue<std\n",
     "expected m1 and m2 to have the same dtype, but got: c10::Half != float"},
    {"Target 5 is out of bounds.\n"
     "Exception raised from nll_loss_out_frame at /pytorch/aten/src/ATen/native/LossNLL.cpp:255 (most recent call first):\n"
     "C++ CapturedTraceback:\n"
     "#4 std::_Function_handler<std::shared_ptr<c10::LazyValue<std\n",
     "Target 5 is out of bounds"},
    {"Given groups=1, weight of size [4, 3, 3, 3], expected input[1, 2, 8, 8] to have 3 channels, but got 2 channels instead\n"
     "Exception raised from check_shape_forward at /pytorch/aten/src/ATen/native/Convolution.cpp:667 (most recent call first):\n"
     "C++ CapturedTraceback:\n"
     "#4 std::_Function_handler<std::shared_ptr<c10::LazyValue<std\n",
     "Given groups=1, weight of size [4, 3, 3, 3], expected input[1, 2, 8, 8] to have 3 channels, but got 2 channels instead"},
    {"one of the variables needed for gradient computation has been modified by an inplace operation: [torch.FloatTensor [3]], which is output 0 of ExpBackward0, is a"
     "t version 1; expected version 0 instead. Hint: enable anomaly detection to find the operation that failed to compute its gradient, with torch.autograd.set_detec"
     "t_anomaly(True, check_nan=False).\n"
     "Exception raised from unpack at /pytorch/torch/csrc/autograd/saved_variable.cpp:197 (most recent call first):\n"
     "C++ CapturedTraceback:\n"
     "#4 std::_Function_handler<std::shared_ptr<c10::LazyValue<std\n",
     "one of the variables needed for gradient computation has been modified by an inplace operation: [torch.FloatTensor [3]], which is output 0 of ExpBackward0, is a"
     "t version 1; expected version 0 instead"},
    {"Trying to backward through the graph a second time (or directly access saved tensors after they have already been freed). Saved intermediate values of the graph"
     " are freed when you call .backward() or autograd.grad(). Specify retain_graph=True if you need to backward through the graph a second time or if you need to acc"
     "ess saved tensors after calling backward.\n"
     "Exception raised from unpack at /pytorch/torch/csrc/autograd/saved_variable.cpp:136 (most recent call first):\n"
     "C++ CapturedTraceback:\n"
     "#4 std::_Function_handler<std::shared_ptr<c10::LazyValue<std\n",
     "Trying to backward through the graph a second time (or directly access saved tensors after they have already been freed)"},
    {"CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.19 GiB of which 1.06 GiB is free. Including non-PyTorch memory, this process ha"
     "s 78.12 GiB memory in use.\n"
     "Exception raised from malloc at CUDACachingAllocator.cpp:1342 (most recent call first):\n"
     "frame #0: c10::Error::Error(\n",
     "CUDA out of memory. Tried to allocate 2.00 GiB"},
    {"CUDA error: device-side assert triggered\n"
     "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.\n"
     "For debugging consider passing CUDA_LAUNCH_BLOCKING=1\n",
     "CUDA error: device-side assert triggered"},
    {"[../third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:5310",
     "Connection closed by peer [127.0.0.1]:5310"},
    {"std::bad_alloc",
     "std::bad_alloc"},
    {"\n",
     "LibTorch reports no reason"},
    {"Exception raised from f at x.cpp:1 (most recent call first):\n"
     "frame #0: f\n",
     "LibTorch reports no reason"},
    {"a\033[31m red word",
     "a\\x1b[31m red word"},
};
// clang-format on

}  // namespace

TEST_CASE("an error of LibTorch is one line: what is wrong, and the model's own line") {
    for (const Row& row : kRows) {
        INFO(row.text);
        CHECK(torch_reason(std::string_view(row.text)) == row.reason);
        CHECK(torch_reason(std::runtime_error(row.text)) == row.reason);
        CHECK(torch_reason(Error(ExitCode::kInput, row.text)) == row.text);
    }
}
