"""One vocabulary: every part of the package knows the same optimizers by the same names."""

import pytest

from batchlens.optimizers import FAMILIES, OPTIMIZERS, averaged, base_of, contained_in, in_theory, is_averaged


def test_training_has_a_recipe_for_every_name() -> None:
    recipes = pytest.importorskip("batchlens.training._recipes")
    assert set(recipes.RECIPES) == set(OPTIMIZERS)


def test_recipes_have_momentum_where_the_vocabulary_says_so() -> None:
    recipes = pytest.importorskip("batchlens.training._recipes")
    for name, entry in OPTIMIZERS.items():
        has = {"momentum", "beta1"} & set(recipes.RECIPES[name].settings)
        assert bool(has) == (entry.momentum != "none"), name


@pytest.mark.parametrize("name", [*OPTIMIZERS, *map(averaged, OPTIMIZERS)])
def test_what_a_name_contains_is_known_and_simpler(name: str) -> None:
    for inner in contained_in(name):
        assert base_of(inner) in OPTIMIZERS
        assert len(contained_in(inner)) < len(contained_in(name))
        assert in_theory(inner)[1] == in_theory(name)[1]
    assert is_averaged(name) == (base_of(name) in contained_in(name))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_name_has_a_counterpart_that_the_theory_tunes(name: str) -> None:
    family, power = in_theory(name)
    assert family in FAMILIES
    assert 0 <= power <= 1


def test_families_contain_families() -> None:
    assert {inner for family in FAMILIES for inner in contained_in(family)} <= set(FAMILIES)
