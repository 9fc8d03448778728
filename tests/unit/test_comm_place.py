from stage_worker.comm_place import Place


def test_place_of_a_worker_in_two_replicas_of_three_stages() -> None:
    place = Place(worker=4, pp=3, dp=2)
    assert (place.num_workers, place.pp_rank, place.dp_rank) == (6, 1, 1)
    assert place.replica == (3, 4, 5)
    assert place.twins == (1, 4)


def test_places_cover_the_grid_once() -> None:
    places = [Place(worker=worker, pp=2, dp=3) for worker in range(6)]
    assert [(p.dp_rank, p.pp_rank) for p in places] == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]
    assert all(p.replica[p.pp_rank] == p.twins[p.dp_rank] == p.worker for p in places)
