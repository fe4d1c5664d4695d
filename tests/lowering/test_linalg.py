"""Linear algebra against CPU torch; factors with free signs by what they reconstruct."""

from __future__ import annotations

import pytest
import torch
from emulate import Lowered, check, run

import torch_neuronx

aten = torch.ops.aten
DTYPES = [torch.float32, torch.float64, torch.complex64]


def randn(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def positive(*shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    x = randn(*shape, dtype=dtype)
    return x @ x.mH + torch.eye(shape[-1], dtype=dtype)


TOLERANT = {"rtol": 1e-3, "atol": 1e-3}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("upper", [False, True])
def test_cholesky(dtype: torch.dtype, upper: bool) -> None:
    a = positive(2, 3, 3, dtype=dtype)
    factor, _ = check(aten.linalg_cholesky_ex.default, a, upper=upper, **TOLERANT)
    check(aten.cholesky_solve.default, randn(2, 3, 2, dtype=dtype), factor, upper, **TOLERANT)
    check(aten.cholesky_inverse.default, factor, upper, **TOLERANT)


def test_cholesky_reports_the_failing_minor() -> None:
    a = torch.diag(torch.tensor([1.0, -1.0, 1.0]))
    _, info = run(aten.linalg_cholesky_ex.default, (a,), {})
    assert info.item() == 2
    with Lowered(strict=True), pytest.raises(torch.linalg.LinAlgError, match="not positive-definite"):
        torch.linalg.cholesky(a)
    _, info = run(aten.linalg_cholesky_ex.default, (torch.diag(torch.tensor([1.0, 4.0, float("nan")])),), {})
    assert info.item() == 3


@pytest.mark.parametrize("dtype", DTYPES)
def test_lu(dtype: torch.dtype) -> None:
    a = randn(2, 3, 4, dtype=dtype)
    packed, pivots, _ = check(aten.linalg_lu_factor_ex.default, a, **TOLERANT)
    check(aten.lu_unpack.default, packed, pivots, **TOLERANT)
    check(aten.linalg_lu.default, randn(4, 3, dtype=dtype), **TOLERANT)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("adjoint", [False, True])
def test_lu_solve(dtype: torch.dtype, left: bool, adjoint: bool) -> None:
    lu, pivots = torch.linalg.lu_factor(randn(2, 3, 3, dtype=dtype))
    b = randn(2, 3, 4, dtype=dtype) if left else randn(2, 4, 3, dtype=dtype)
    check(aten.linalg_lu_solve.default, lu, pivots, b, left=left, adjoint=adjoint, **TOLERANT)


@pytest.mark.parametrize("dtype", DTYPES)
def test_solve(dtype: torch.dtype) -> None:
    a = randn(2, 3, 3, dtype=dtype)
    check(aten._linalg_solve_ex.default, a, randn(2, 3, 2, dtype=dtype), **TOLERANT)
    check(aten._linalg_solve_ex.default, a, randn(2, 3, dtype=dtype), **TOLERANT)
    check(aten._linalg_solve_ex.default, a, randn(2, 4, 3, dtype=dtype), left=False, **TOLERANT)
    check(aten.linalg_inv_ex.default, a, **TOLERANT)


def test_inverse_of_a_singular_matrix_raises() -> None:
    with Lowered(strict=True), pytest.raises(torch.linalg.LinAlgError, match=r"singular|diagonal element"):
        torch.linalg.inv(torch.zeros(2, 2))


@pytest.mark.parametrize("contiguous", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_determinants_and_their_gradients(dtype: torch.dtype, contiguous: bool) -> None:
    a = randn(2, 3, 3, dtype=dtype)
    a = a if contiguous else a.mT
    check(aten._linalg_det.default, a, **TOLERANT)
    check(aten._linalg_slogdet.default, a, **TOLERANT)
    a = a.detach().requires_grad_()
    want = torch.autograd.grad(torch.linalg.det(a).abs().sum(), a)
    with Lowered(strict=True):
        got = torch.autograd.grad(torch.linalg.det(a).abs().sum(), a)
    torch.testing.assert_close(got, want, **TOLERANT)


@pytest.mark.parametrize("mode", ["reduced", "complete", "r"])
@pytest.mark.parametrize("shape", [(4, 3), (3, 4), (2, 3, 3), (0, 3), (3, 0)])
def test_qr(shape: tuple[int, ...], mode: str) -> None:
    check(aten.linalg_qr.default, randn(*shape), mode)


@pytest.mark.parametrize("dtype", DTYPES)
def test_householder_reflectors(dtype: torch.dtype) -> None:
    a, tau = run(aten.geqrf.default, (randn(4, 3, dtype=dtype),), {})
    want = aten.geqrf.default(randn(4, 3, dtype=dtype))  # column-major on the CPU; torch describes no strides
    torch.testing.assert_close((a, tau), want, **TOLERANT)
    check(aten.linalg_householder_product.default, a, tau, **TOLERANT)
    for left in (False, True):
        for transpose in (False, True):
            c = randn(4, 2, dtype=dtype) if left else randn(2, 4, dtype=dtype)
            check(aten.ormqr.default, a, tau, c, left, transpose, **TOLERANT)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("uplo", ["L", "U"])
def test_eigh_reconstructs(dtype: torch.dtype, uplo: str) -> None:
    a = positive(2, 3, 3, dtype=dtype)
    w, v = run(aten._linalg_eigh.default, (a, uplo), {})
    torch.testing.assert_close(w, torch.linalg.eigvalsh(a), **TOLERANT)
    torch.testing.assert_close((v * w.unsqueeze(-2)) @ v.mH, a, **TOLERANT)
    values, none = run(aten._linalg_eigh.default, (a, uplo, False), {})
    torch.testing.assert_close(values, w, **TOLERANT)
    assert none.shape == (0,)


@pytest.mark.parametrize("dtype", DTYPES)
def test_eig_reconstructs(dtype: torch.dtype) -> None:
    a = randn(2, 3, 3, dtype=dtype)
    w, v = run(aten.linalg_eig.default, (a,), {})
    torch.testing.assert_close(a.to(v.dtype) @ v, v * w.unsqueeze(-2), **TOLERANT)
    with pytest.raises(RuntimeError, match="infs or NaNs"):
        run(aten.linalg_eig.default, (torch.full_like(a, float("nan")),), {})


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("full", [False, True])
def test_svd_reconstructs(dtype: torch.dtype, full: bool) -> None:
    for shape in ((2, 3, 4), (4, 3)):
        a = randn(*shape, dtype=dtype)
        u, s, vh = run(aten._linalg_svd.default, (a, full), {})
        want = torch.linalg.svd(a, full)
        assert u.shape == want.U.shape and vh.shape == want.Vh.shape
        torch.testing.assert_close(s, want.S, **TOLERANT)
        k = s.shape[-1]
        torch.testing.assert_close((u[..., :k] * s.unsqueeze(-2)) @ vh[..., :k, :], a, **TOLERANT)
    _, s, _ = check(aten._linalg_svd.default, randn(3, 3, dtype=dtype), False, False, **TOLERANT)


def test_svd_of_nan_raises() -> None:
    with pytest.raises(torch.linalg.LinAlgError, match="non-finite"):
        run(aten._linalg_svd.default, (torch.full((3, 3), float("nan")),), {})


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("upper", [False, True])
def test_triangular(dtype: torch.dtype, upper: bool) -> None:
    a = randn(2, 3, 3, dtype=dtype) + 3 * torch.eye(3, dtype=dtype)
    solve = aten.linalg_solve_triangular.default
    check(solve, a, randn(3, 2, dtype=dtype), upper=upper, **TOLERANT)
    check(solve, a, randn(2, 4, 3, dtype=dtype), upper=upper, left=False, unitriangular=True, **TOLERANT)
    check(aten.triangular_solve.default, randn(2, 3, 2, dtype=dtype), a, upper, True, **TOLERANT)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0])
def test_matrix_exponential(dtype: torch.dtype, scale: float) -> None:
    a = randn(2, 4, 4, dtype=dtype) * scale
    a = a - a.mH  # bounded result whatever the scale
    check(aten.linalg_matrix_exp.default, a, **TOLERANT)


def check_in_steps(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
    with Lowered(strict=True):
        return aten.linalg_lstsq.default(a, b, driver="gelsd")


def test_least_squares_and_pseudo_inverse() -> None:
    a, b = randn(5, 3), randn(5, 2)
    for driver in (None, "gels", "gelsd"):
        got = run(aten.linalg_lstsq.default, (a, b), {"driver": driver})
        for x, y in zip(got, aten.linalg_lstsq.default(a, b, driver=driver), strict=True):
            torch.testing.assert_close(x, y)
    many = randn(2, 5, 3), randn(2, 5, 2)
    for x, y in zip(check_in_steps(*many), aten.linalg_lstsq.default(*many, driver="gelsd"), strict=True):
        torch.testing.assert_close(x, y)
    low = randn(4, 1) @ randn(1, 3)
    with Lowered(strict=True):
        got = torch.linalg.pinv(low), torch.linalg.pinv(low @ low.mT, hermitian=True)
    torch.testing.assert_close(got, (torch.linalg.pinv(low), torch.linalg.pinv(low @ low.mT, hermitian=True)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("hermitian", [False, True])
def test_ldl(dtype: torch.dtype, hermitian: bool) -> None:
    a = randn(3, 6, 6, dtype=dtype)
    a = a + (a.mH if hermitian else a.mT)  # indefinite: both kinds of pivots occur
    a[2, 0, 0] = 0
    ld, pivots, _ = check(aten.linalg_ldl_factor_ex.default, a, hermitian=hermitian, **TOLERANT)
    assert (pivots < 0).any() and (pivots > 0).any()
    check(aten.linalg_ldl_solve.default, ld, pivots, randn(6, 2, dtype=dtype), hermitian=hermitian, **TOLERANT)


def test_ldl_of_a_singular_matrix() -> None:
    check(aten.linalg_ldl_factor_ex.default, torch.diag(torch.tensor([1.0, 0.0, 2.0])))


def test_empty_matrices() -> None:
    for shape in ((0, 0), (2, 0, 0), (0, 3, 3)):
        e = torch.empty(shape)
        check(aten.linalg_cholesky_ex.default, e)
        check(aten._linalg_det.default, e)
        check(aten.linalg_inv_ex.default, e)
        check(aten._linalg_eigh.default, e)
        check(aten._linalg_svd.default, e)


def test_cross_product() -> None:
    check(aten.linalg_cross.default, randn(4, 3), randn(1, 3))
    check(aten.linalg_cross.default, randn(3, 4), randn(3, 4, seed=1), dim=0)


def test_linear_combination():
    check(aten._compute_linear_combination.default, torch.randn(3, 2, 5), torch.randn(4, 3))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_matrix_exp_of_half_precision_says_why_it_runs_on_the_cpu(dtype: torch.dtype) -> None:
    with pytest.raises(RuntimeError, match="depends on its blocking"), torch_neuronx.no_fallback():
        torch.linalg.matrix_exp(torch.eye(3, dtype=dtype, device="neuron"))
